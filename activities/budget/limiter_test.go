package budget

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// newLimiter returns one with a share that does not end.
func newLimiter(rate int) *limiter {
	l := &limiter{metrics: telemetry.Discard}
	l.share(grant{limit: rate, left: -1}, false, "")
	return l
}

// most returns the greatest number of instants in any half-open second.
func most(sent []time.Time) int {
	n, first := 0, 0
	for i := range sent {
		for sent[i].Sub(sent[first]) >= time.Second {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

func send(t require.TestingT, l *limiter) {
	p, err := l.Acquire(context.Background())
	require.NoError(t, err)
	require.NoError(t, p.Start())
	p.Sent()
}

// Whatever happens between permit, start and sending, no second holds more
// than the rate. The send is recorded where it really takes place: after the
// delay that follows Start.
func TestNeverMoreThanTheRateInAnySecond(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom([]int{1, 2, 3, 10, 50}).Draw(rt, "rate")
		callers := rapid.IntRange(1, 2*rate+3).Draw(rt, "callers")
		type step struct{ idle, hold, dial int }
		plan := make([][]step, callers)
		for i := range plan {
			plan[i] = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
				return step{
					idle: rapid.SampledFrom([]int{0, 0, 0, 1, 400, 999, 3000}).Draw(rt, "idle"),
					hold: rapid.SampledFrom([]int{0, 0, 1, 49, 50, 51, 2000}).Draw(rt, "hold"),
					dial: rapid.SampledFrom([]int{0, 0, 1, 300, 1900}).Draw(rt, "dial"),
				}
			}), 1, 6).Draw(rt, "steps")
		}
		var sent []time.Time
		leaked := 0
		synctest.Test(t, func(*testing.T) {
			l := newLimiter(rate)
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, steps := range plan {
				wg.Go(func() {
					for _, s := range steps {
						time.Sleep(time.Duration(s.idle) * time.Millisecond)
						p, err := l.Acquire(context.Background())
						if err != nil {
							panic(err)
						}
						time.Sleep(time.Duration(s.hold) * time.Millisecond)
						if err := p.Start(); err != nil {
							if s.hold <= 50 {
								panic("fresh permit refused")
							}
							continue
						}
						if s.hold > 50 {
							panic("stale permit accepted")
						}
						time.Sleep(time.Duration(s.dial) * time.Millisecond)
						mu.Lock()
						sent = append(sent, time.Now())
						mu.Unlock()
						p.Sent()
					}
				})
			}
			wg.Wait()
			leaked = l.open
		})
		if n := most(sent); n > rate {
			rt.Fatalf("%d calls in one second, rate %d", n, rate)
		}
		if leaked != 0 {
			rt.Fatalf("%d slots leaked", leaked)
		}
	})
}

func TestSaturatedRateIsUsed(t *testing.T) {
	for _, rate := range []int{1, 10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(rate)
			var mu sync.Mutex
			var sent []time.Time
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for range min(2*rate, 100) {
				wg.Go(func() {
					for {
						p, err := l.Acquire(ctx)
						if err != nil {
							return
						}
						_ = p.Start()
						mu.Lock()
						sent = append(sent, time.Now())
						mu.Unlock()
						p.Sent()
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, most(sent), rate)
			require.GreaterOrEqual(t, float64(len(sent)), 0.95*float64(rate)*100)
		})
	}
}

func TestZeroIsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := newLimiter(0).Acquire(ctx)
		require.ErrorIs(t, err, ErrNoPermit)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1)
		send(t, l)
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				p, err := l.Acquire(t.Context())
				if err != nil || p.Start() != nil {
					panic("no permit")
				}
				order = append(order, i) // the rate of 1 serialises
				p.Sent()
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	})
}

func TestReleasedAndStaleAndAbandonedSlotsComeBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		p.Release()
		p.Release()
		require.ErrorIs(t, p.Start(), ErrStale, "released")

		p, err = l.Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(MaxPermitAge + 1)
		require.ErrorIs(t, p.Start(), ErrStale)
		p.Release()

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		p, err = l.Acquire(ctx)
		require.NoError(t, err)
		_, err = l.Acquire(ctx)
		require.True(t, errors.Is(err, ErrNoPermit))
		p.Release()
		before := time.Now()
		send(t, l)
		require.Zero(t, time.Since(before))
		require.Zero(t, l.waiters.Len())
	})
}

func TestThrottledPauseIsCappedAndHasADefault(t *testing.T) {
	for _, c := range []struct{ asked, want time.Duration }{{0, defaultPause}, {time.Hour, maxPause}} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(1)
			p, err := l.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, p.Start())
			p.Sent()
			time.Sleep(2 * window)
			p.Throttled(c.asked)
			before := time.Now()
			send(t, l)
			require.Equal(t, c.want, time.Since(before))
		})
	}
}

func TestConfig(t *testing.T) {
	require.ErrorContains(t, Default().Validate(), "UPSTREAM_RPS: is required")
	require.ErrorContains(t, Config{UpstreamRPS: -2}.Validate(), "UPSTREAM_RPS=-2")
	require.NoError(t, Config{UpstreamRPS: 0}.Validate())
}
