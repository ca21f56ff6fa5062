package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fakeTemporal is the budget workflow behind a network. Its faults apply to one
// worker's requests or to all.
type fakeTemporal struct {
	mu    sync.Mutex
	state *contract.BudgetState
	seen  []contract.ShareRequest
	// fault says how long a request takes to get there and the answer to get
	// back, and whether the answer is lost; nil: 5 ms each.
	fault func(contract.ShareRequest) (there, back time.Duration, lost bool)
}

// newTemporal returns a budget that has been running for a TTL.
func newTemporal() *fakeTemporal {
	return &fakeTemporal{state: allot.New(time.Now().Add(-contract.ShareTTL))}
}

var errCut = errors.New("connection lost")

func (f *fakeTemporal) Renew(ctx context.Context, r contract.ShareRequest) (contract.Share, error) {
	there, back, lost := 5*time.Millisecond, 5*time.Millisecond, false
	f.mu.Lock()
	if f.fault != nil {
		there, back, lost = f.fault(r)
	}
	f.mu.Unlock()
	type result struct {
		contract.Share
		error
	}
	answer := make(chan result, 1)
	time.AfterFunc(there, func() { // it gets there, whether its sender waits or not
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen = append(f.seen, r)
		share, err := allot.Renew(f.state, time.Now(), r)
		time.AfterFunc(back, func() { answer <- result{share, err} })
	})
	if lost {
		<-ctx.Done()
		return contract.Share{}, errCut
	}
	select {
	case a := <-answer:
		return a.Share, a.error
	case <-ctx.Done():
		return contract.Share{}, ctx.Err()
	}
}

// worker is a Fleet and callers that never have enough.
type worker struct {
	*Fleet
	stop func()

	mu   sync.Mutex
	sent []time.Time
}

func newFleet(rps int, g Granter) *Fleet {
	return NewFleet(Config{UpstreamRPS: rps}, g, telemetry.Discard, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// startWorker has n callers call until stop; a call takes no time but dial.
func startWorker(rps, n int, g Granter, dial func() time.Duration) *worker {
	w := &worker{Fleet: newFleet(rps, g)}
	calls, endCalls := context.WithCancel(context.Background())
	run, endRun := context.WithCancel(context.Background())
	var callers, loop sync.WaitGroup
	for range n {
		callers.Go(func() {
			for {
				p, err := w.Acquire(calls)
				if err != nil {
					return
				}
				if p.Start() != nil {
					continue
				}
				time.Sleep(dial())
				w.mu.Lock()
				w.sent = append(w.sent, time.Now())
				w.mu.Unlock()
				p.Sent()
			}
		})
	}
	synctest.Wait() // the first request tells of them
	loop.Go(func() { _ = w.Run(run) })
	w.stop = func() { endCalls(); callers.Wait(); endRun(); loop.Wait() }
	return w
}

func atOnce() time.Duration { return 0 }

func (w *worker) since(t time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if !s.Before(t) {
			n++
		}
	}
	return n
}

func merge(workers ...*worker) (all []time.Time) {
	for _, w := range workers {
		all = append(all, w.sent...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// Three workers that never have enough, on a network that delays and loses, with
// one of them killed and one that joins: no second holds more than the budget.
func TestAFleetNeverExceedsItsBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rps := rapid.SampledFrom([]int{1, 2, 10, 50}).Draw(rt, "rps")
		seed := rapid.Int64().Draw(rt, "seed")
		bad := rapid.SampledFrom([]int{0, 5, 30}).Draw(rt, "percent of requests delayed or lost")
		var all []time.Time
		synctest.Test(t, func(*testing.T) {
			random := rand.New(rand.NewSource(seed))
			var mu sync.Mutex
			intn := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.Intn(n)
			}
			temporal := newTemporal()
			temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) {
				if intn(100) >= bad {
					return time.Duration(intn(30)) * time.Millisecond, 5 * time.Millisecond, false
				}
				return time.Duration(intn(9000)) * time.Millisecond, time.Duration(intn(3000)) * time.Millisecond, intn(2) == 0
			}
			dial := func() time.Duration {
				if intn(10) == 0 {
					return time.Duration(intn(1500)) * time.Millisecond
				}
				return 0
			}
			var workers []*worker
			for range 3 {
				workers = append(workers, startWorker(rps, 2*rps, temporal, dial))
				time.Sleep(time.Duration(intn(3000)) * time.Millisecond)
			}
			for range 6 {
				time.Sleep(time.Duration(intn(8000)) * time.Millisecond)
				switch intn(4) {
				case 0:
					workers = append(workers, startWorker(rps, 2*rps, temporal, dial))
				case 1:
					workers[intn(len(workers))].stop()
				case 2:
					workers[intn(len(workers))].Suspect()
				case 3:
					workers[intn(len(workers))].Suspend("500 for everybody", time.Time{})
				}
			}
			for _, w := range workers {
				w.stop()
			}
			time.Sleep(30 * time.Second) // what is still on its way arrives
			all = merge(workers...)
		})
		if n := most(all); n > rps {
			rt.Fatalf("%d calls in one second, budget %d", n, rps)
		}
	})
}

func TestASaturatedFleetUsesItsBudget(t *testing.T) {
	for _, rps := range []int{1, 10, 1000} {
		t.Run(fmt.Sprint(rps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				temporal := newTemporal()
				var workers []*worker
				for range 3 {
					workers = append(workers, startWorker(rps, min(2*rps, 100), temporal, atOnce))
				}
				time.Sleep(15 * time.Second)
				start, n := time.Now(), 0
				time.Sleep(100 * time.Second)
				for _, w := range workers {
					n += w.since(start)
				}
				for _, w := range workers {
					w.stop()
				}
				require.LessOrEqual(t, most(merge(workers...)), rps)
				require.GreaterOrEqual(t, n, rps*95)
			})
		})
	}
}

func TestOneBusyWorkerAmongIdleOnesGetsNearlyAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		idle, other := startWorker(1000, 0, temporal, atOnce), startWorker(1000, 0, temporal, atOnce)
		busy := startWorker(1000, 100, temporal, atOnce)
		time.Sleep(15 * time.Second)
		start := time.Now()
		time.Sleep(20 * time.Second)
		require.GreaterOrEqual(t, busy.since(start), 19*1000)

		// An idle one that has something to call is not kept waiting where there
		// is something left.
		busy.stop()
		time.Sleep(5 * time.Second)
		asked := time.Now()
		send := func() { _, err := idle.Acquire(t.Context()); require.NoError(t, err) }
		send()
		require.Less(t, time.Since(asked), 100*time.Millisecond)
		idle.stop()
		other.stop()
	})
}

func TestAWorkerThatIsCutOffStopsWhenItsShareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(20 * time.Second)
		temporal.mu.Lock()
		temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) { return time.Hour, 0, true }
		cut := time.Now()
		w.Fleet.mu.Lock()
		last := w.asked
		w.Fleet.mu.Unlock()
		temporal.mu.Unlock()
		time.Sleep(time.Minute)
		require.Positive(t, w.since(cut), "a share is good without Temporal")
		require.Zero(t, w.since(last.Add(contract.ShareUse)))

		temporal.mu.Lock()
		temporal.fault = nil
		temporal.mu.Unlock()
		back := time.Now()
		time.Sleep(5 * time.Second)
		require.GreaterOrEqual(t, w.since(back), 10)
		w.stop()
	})
}

// What is shown of a share that has ended for want of an answer is that nothing is
// granted, and why.
func TestAShareThatHasEndedIsShownAsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal, tally := newTemporal(), telemetry.NewTally(telemetry.Discard)
		f := NewFleet(Config{UpstreamRPS: 10}, temporal, tally, slog.New(slog.DiscardHandler))
		wanted := func() {
			f.limiter.mu.Lock()
			defer f.limiter.mu.Unlock()
			f.limiter.demand.see(time.Now(), 20)
		}
		started := time.Now()
		leased := func() float64 { return tally.Totals().Gauges["budget.leased"] }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer func() { cancel(); wg.Wait() }()
		lost := func(contract.ShareRequest) (time.Duration, time.Duration, bool) { return time.Hour, 0, true }
		temporal.set(lost)
		wg.Go(func() { _ = f.Run(ctx) })

		time.Sleep(contract.ShareUse - time.Millisecond)
		require.Equal(t, contract.Share{}, f.Share())
		time.Sleep(time.Millisecond)
		require.Equal(t, contract.Share{Unanswered: started}, f.Share(), "there never was an answer")

		temporal.set(nil)
		wanted()
		time.Sleep(4 * time.Second)
		require.Equal(t, 10, f.Share().Calls)
		require.Zero(t, f.Share().Unanswered)
		require.EqualValues(t, 10, leased())

		temporal.set(lost)
		f.mu.Lock()
		last := f.asked
		f.mu.Unlock()
		time.Sleep(time.Until(last.Add(contract.ShareUse - time.Millisecond)))
		require.Equal(t, 10, f.Share().Calls, "in use to the end")
		require.EqualValues(t, 10, leased())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Zero(t, f.Share().Calls)
		require.Equal(t, 10, f.Share().Limit, "as last heard")
		require.Equal(t, last, f.Share().Unanswered)
		require.Zero(t, leased())

		temporal.set(nil)
		wanted()
		time.Sleep(4 * time.Second)
		require.Equal(t, 10, f.Share().Calls)
		require.Zero(t, f.Share().Unanswered)
		require.EqualValues(t, 10, leased())
	})
}

// A worker that is cut off from everything at the last moment of its share, with
// calls that take as long as they may to connect: all are sent at once when it is
// over, and meet in no second with those of the worker that got the budget since.
func TestCallsThatConnectSlowlyMeetNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rps = 10
		temporal := newTemporal()
		var cut atomic.Bool // w connects slowly
		w := startWorker(rps, rps, temporal, func() time.Duration {
			if !cut.Load() {
				return 0
			}
			return contract.SendWithin
		})
		time.Sleep(20 * time.Second)
		temporal.mu.Lock()
		temporal.fault = func(r contract.ShareRequest) (time.Duration, time.Duration, bool) {
			if r.Worker == w.Fleet.worker {
				return time.Hour, 0, true
			}
			return 0, 0, false
		}
		temporal.mu.Unlock()
		w.Fleet.mu.Lock()
		last := w.asked
		w.Fleet.mu.Unlock()
		time.Sleep(time.Until(last.Add(contract.ShareUse - time.Second)))
		cut.Store(true)
		since := time.Now()
		other := startWorker(rps, 2*rps, temporal, atOnce)
		time.Sleep(30 * time.Second)
		require.NotZero(t, w.since(last.Add(contract.ShareUse+contract.SendWithin-time.Second)), "calls that connected slowly")
		require.NotZero(t, other.since(since))
		w.stop()
		other.stop()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, most(merge(w, other)), rps)
	})
}

// The share's time counts from before it was asked for: an answer that took 2 s
// leaves 8 s of it, and one that took longer than a request may is not used.
func TestTheTTLCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		first := true
		temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) {
			if first {
				first = false
				return 0, 2 * time.Second, false
			}
			return time.Hour, 0, true
		}
		asked := time.Now()
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(time.Minute)
		w.stop()
		require.NotEmpty(t, w.sent)
		require.False(t, w.sent[0].Before(asked.Add(2*time.Second)))
		require.True(t, w.sent[len(w.sent)-1].Before(asked.Add(contract.ShareUse)))
	})
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) { return 0, askTimeout + 1, false }
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(time.Minute)
		w.stop()
		time.Sleep(time.Minute)
		require.Empty(t, w.sent, "the answers came, but to requests that were given up")
	})
}

func TestASuspectWaitsForTheBudgetsView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w, other := startWorker(100, 100, temporal, atOnce), startWorker(100, 0, temporal, atOnce)
		time.Sleep(20 * time.Second)
		other.Suspend("401 for everybody", time.Time{})
		time.Sleep(40 * time.Millisecond) // the budget knows, w does not
		require.False(t, w.Outage().Open)
		w.Suspect()
		suspected := time.Now()
		time.Sleep(4 * time.Second)
		require.True(t, w.Outage().Open)
		require.Equal(t, "401 for everybody", w.Outage().Cause)
		require.Zero(t, w.since(suspected.Add(1)))
		w.stop()
		other.stop()
	})
}

func TestThrottledReachesTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		f := newFleet(100, temporal)
		other := startWorker(100, 100, temporal, atOnce)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = f.Run(ctx) })
		p, err := f.Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, p.Start())
		p.Sent()
		p.Throttled(8 * time.Second)
		told := time.Now()
		time.Sleep(100 * time.Millisecond)
		require.Zero(t, f.Share().Limit, "told at once")
		time.Sleep(6 * time.Second)
		n := other.since(told.Add(5 * time.Second))
		require.Zero(t, n, "the others stop when they renew")
		time.Sleep(5 * time.Second)
		require.Less(t, other.Share().Limit, 60)
		require.Positive(t, other.Share().Limit)
		cancel()
		wg.Wait()
		other.stop()
	})
}

func TestLeavingGivesTheShareBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(10 * time.Second)
		w.stop()
		require.True(t, temporal.seen[len(temporal.seen)-1].Leaving)
		time.Sleep(3 * time.Second)
		require.Empty(t, allot.Status(temporal.state, time.Now()).Workers)
	})
}

// Whatever becomes of Temporal after it was granted, a probe is one call.
func TestAGrantedProbeIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(20 * time.Second)
		w.Suspend("500 for everybody", time.Time{})
		suspended := time.Now()
		temporal.mu.Lock()
		var probed atomic.Bool
		temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) {
			if temporal.state.Breaker.Open && !time.Now().Before(temporal.state.NextProbe) {
				probed.Store(true)
			}
			return 5 * time.Millisecond, 5 * time.Millisecond, false
		}
		temporal.mu.Unlock()
		for !probed.Load() {
			time.Sleep(time.Millisecond)
		}
		temporal.mu.Lock()
		temporal.fault = func(contract.ShareRequest) (time.Duration, time.Duration, bool) { return time.Hour, 0, true }
		temporal.mu.Unlock()
		time.Sleep(time.Minute)
		require.Equal(t, 1, w.since(suspended.Add(time.Second)))
		w.stop()
	})
}
