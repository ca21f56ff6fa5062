package budget

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A limit that changes while calls are under way: a second never holds more than
// the greatest limit that was in force in it, but for calls that a greater limit
// had permitted before; and a permit is given only while fewer calls are under
// way or in the window than the limit of that moment.
func TestALimitThatChangesHoldsAtOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limits := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 5, 20}), 2, 6).Draw(rt, "limits")
		lasts := rapid.SliceOfN(rapid.SampledFrom([]int{1, 300, 999, 1100, 2500}), len(limits), len(limits)).Draw(rt, "lasts")
		dial := rapid.SampledFrom([]int{0, 0, 1, 700}).Draw(rt, "dial")
		type change struct {
			at    time.Time
			limit int
			held  int // what usage said just before
		}
		var changes []change
		var sent []time.Time
		synctest.Test(t, func(*testing.T) {
			l := newLimiter(0)
			ctx, cancel := context.WithCancel(context.Background())
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					for {
						p, err := l.Acquire(ctx)
						if err != nil {
							return
						}
						if p.Start() != nil {
							continue
						}
						time.Sleep(time.Duration(dial) * time.Millisecond)
						mu.Lock()
						sent = append(sent, time.Now())
						mu.Unlock()
						p.Sent()
					}
				})
			}
			for i, limit := range limits {
				held := l.usage().held
				changes = append(changes, change{time.Now(), limit, held})
				l.share(grant{limit: limit, left: -1}, false, "")
				time.Sleep(time.Duration(lasts[i]) * time.Millisecond)
				synctest.Wait()
			}
			cancel()
			wg.Wait()
		})
		// Whatever was reported as held before a change, and the limit after it,
		// bound every second that ends after it.
		for first, last := 0, 0; last < len(sent); last++ {
			for sent[last].Sub(sent[first]) >= time.Second {
				first++
			}
			bound := 0
			for _, c := range changes {
				if !c.at.After(sent[last]) {
					bound = max(c.limit, c.held)
				}
			}
			if n := last - first + 1; n > bound {
				rt.Fatalf("%d calls in the second before %v, bound %d: %v", n, sent[last], bound, changes)
			}
		}
	})
}

func TestHeldFallsOnlyOnceASecondHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(3)
		for range 3 {
			send(t, l)
		}
		p, err := func() (Permit, error) {
			time.Sleep(window)
			return l.Acquire(t.Context())
		}()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		require.Equal(t, 3, l.usage().held, "may be used in full")
		l.share(grant{limit: 0, left: -1}, false, "")
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, l.usage().held, "may still be sent")
		p.Sent()
		time.Sleep(window - 1)
		require.Equal(t, 1, l.usage().held)
		time.Sleep(time.Nanosecond)
		require.Zero(t, l.usage().held)
	})
}

func TestAShareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0)
		l.share(grant{limit: 5, left: -1, until: time.Now().Add(10 * time.Second)}, false, "")
		time.Sleep(10*time.Second - 20*time.Millisecond)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
		require.ErrorIs(t, p.Start(), ErrStale, "the share ended with the permit in hand")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = l.Acquire(ctx)
		require.ErrorIs(t, err, ErrNoPermit)
	})
}

func TestAProbeIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0)
		l.share(grant{limit: 1, left: 1}, true, "500 for everybody")
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		p.Release()
		send(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = l.Acquire(ctx)
		require.ErrorIs(t, err, ErrNoPermit)
	})
}

func TestAnOutageVoidsPermitsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(5)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		l.share(grant{left: -1}, true, "500 for everybody")
		require.ErrorIs(t, p.Start(), ErrStale)
	})
}

func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10)
		require.Zero(t, l.usage().demand)
		for range 8 {
			send(t, l)
		}
		require.Equal(t, 10, l.usage().demand, "what it used and a quarter")
		time.Sleep(2 * memory)
		require.Zero(t, l.usage().demand, "idle")

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 15 {
			wg.Go(func() {
				if p, err := l.Acquire(ctx); err == nil {
					_ = p.Start()
				}
			})
		}
		time.Sleep(window)
		synctest.Wait()
		require.Equal(t, 20, l.usage().demand, "twice what it has")
		l.share(grant{limit: 0, left: -1}, true, "500 for everybody")
		require.Equal(t, 5, l.usage().demand, "those who could probe")
		cancel()
		wg.Wait()
	})
}
