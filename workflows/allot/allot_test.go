package allot_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// world is an allocator with workers that get every answer at once.
type world struct {
	t     *testing.T
	state *contract.BudgetState
	now   time.Time
	seq   int64
	held  map[string]int
}

// opened returns a world whose budget has been running for a TTL.
func opened(t *testing.T) *world {
	return &world{t: t, state: allot.New(epoch), now: epoch.Add(contract.ShareTTL), held: map[string]int{}}
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) renew(worker string, rps, demand int, change ...func(*contract.ShareRequest)) contract.Share {
	w.t.Helper()
	w.seq++
	r := contract.ShareRequest{Worker: worker, Started: epoch, Seq: w.seq, RPS: rps, Demand: demand, Held: w.held[worker]}
	for _, f := range change {
		f(&r)
	}
	share, err := allot.Renew(w.state, w.now, r)
	require.NoError(w.t, err)
	w.held[worker] = share.Calls
	return share
}

// settle has all workers renew until nothing moves any more.
func (w *world) settle(rps int, demand map[string]int) map[string]int {
	shares := map[string]int{}
	for range 6 {
		for _, name := range slices.Sorted(maps.Keys(demand)) {
			shares[name] = w.renew(name, rps, demand[name]).Calls
		}
		w.pass(2 * time.Second)
	}
	return shares
}

func TestSharesSumToTheBudget(t *testing.T) {
	const much = 1000000
	for _, c := range []struct {
		rps    int
		demand map[string]int
		want   map[string]int
	}{
		{1, map[string]int{"0": much, "1": much, "2": much}, map[string]int{"0": 1, "1": 0, "2": 0}},
		{10, map[string]int{"0": much, "1": much, "2": much}, map[string]int{"0": 4, "1": 3, "2": 3}},
		{1000, map[string]int{"0": much, "1": much, "2": much}, map[string]int{"0": 334, "1": 333, "2": 333}},
		{1000, map[string]int{"0": much, "1": 0, "2": 0}, map[string]int{"0": 1000, "1": 0, "2": 0}},
		{1000, map[string]int{"0": much, "1": 100, "2": much}, map[string]int{"0": 450, "1": 100, "2": 450}},
		{1000, map[string]int{"0": 10, "1": 100, "2": 20}, map[string]int{"0": 10, "1": 100, "2": 20}},
		{0, map[string]int{"0": much}, map[string]int{"0": 0}},
	} {
		require.Equal(t, c.want, opened(t).settle(c.rps, c.demand), "budget %d, demand %v", c.rps, c.demand)
	}
}

// Whatever the demand: all of the budget is shared out or all demand met, and
// nobody has less than somebody who wanted no more.
func TestSharesAreMaxMinFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rps := rapid.IntRange(0, 50).Draw(rt, "rps")
		demand, total := map[string]int{}, 0
		for i := range rapid.IntRange(1, 8).Draw(rt, "workers") {
			d := rapid.IntRange(0, 30).Draw(rt, "demand")
			demand[fmt.Sprint(i)], total = d, total+d
		}
		shares, sum := opened(t).settle(rps, demand), 0
		for a, share := range shares {
			sum += share
			require.LessOrEqual(t, share, demand[a])
			for b := range shares {
				if share < demand[a] {
					require.LessOrEqual(t, shares[b], share+1, "%v of %v, budget %d", shares, demand, rps)
				}
			}
		}
		require.Equal(t, min(rps, total), sum)
	})
}

func TestTheRemainderStaysWhereItIs(t *testing.T) {
	w := opened(t)
	require.Equal(t, 1, w.renew("b", 1, 9).Calls)
	for range 10 {
		require.Zero(t, w.renew("a", 1, 9).Calls)
		require.Equal(t, 1, w.renew("b", 1, 9).Calls)
		w.pass(4 * time.Second)
	}
}

func TestAStateWithoutMemoryGrantsNothingForOneTTL(t *testing.T) {
	w := &world{t: t, state: allot.New(epoch), now: epoch, held: map[string]int{}}
	for w.now.Before(epoch.Add(contract.ShareTTL)) {
		require.Zero(t, w.renew("a", 10, 5).Calls)
		w.pass(time.Second)
	}
	require.Equal(t, 5, w.renew("a", 10, 5).Calls)
}

func TestAShareThatShrinksIsNotSpentTwice(t *testing.T) {
	w := opened(t)
	require.Equal(t, 10, w.renew("a", 10, 100).Calls)
	b := w.renew("b", 10, 100)
	require.Zero(t, b.Calls)
	require.Equal(t, time.Second, time.Duration(b.Renew), "back soon: a has to shrink first")
	a := w.renew("a", 10, 100, func(r *contract.ShareRequest) { r.Held = 10 })
	require.Equal(t, 5, a.Calls)
	require.Equal(t, 1100*time.Millisecond, time.Duration(a.Renew), "back as soon as it can confirm")
	require.Zero(t, w.renew("b", 10, 100).Calls, "a may have started 10 just now")
	w.pass(1100 * time.Millisecond)
	require.Equal(t, 5, w.renew("a", 10, 100, func(r *contract.ShareRequest) { r.Held = 5 }).Calls)
	require.Equal(t, 5, w.renew("b", 10, 100).Calls)
}

func TestAKilledWorkersShareIsBackWithinOneTTL(t *testing.T) {
	w := opened(t)
	w.settle(10, map[string]int{"0": 99, "1": 99})
	killed := w.now.Add(-2 * time.Second) // the last that was heard of 1
	for w.now.Before(killed.Add(contract.ShareTTL + 100*time.Millisecond)) {
		w.pass(time.Duration(w.renew("0", 10, 99).Renew))
	}
	require.Equal(t, 10, w.renew("0", 10, 99).Calls)
}

func TestALeavingWorkersShareIsBackAtOnce(t *testing.T) {
	w := opened(t)
	w.settle(10, map[string]int{"0": 99, "1": 99})
	w.renew("1", 10, 99, func(r *contract.ShareRequest) { r.Held, r.Leaving = 0, true })
	require.Equal(t, 10, w.renew("0", 10, 99).Calls)
}

func TestOvertakenRequestsAreRefused(t *testing.T) {
	w := opened(t)
	w.renew("a", 10, 1)
	_, err := allot.Renew(w.state, w.now, contract.ShareRequest{Worker: "a", Seq: w.seq, RPS: 10})
	require.ErrorIs(t, err, allot.ErrSuperseded)
}

func TestTimeNeverGoesBack(t *testing.T) {
	w := opened(t)
	w.renew("a", 10, 99)
	w.pass(-time.Hour)
	require.Zero(t, w.renew("b", 10, 99).Calls)
	require.Len(t, w.state.Workers, 2)
}

// Temporal's time jumps ahead, as it does when another host takes over: a lease ends
// early by as much, and still not before a sliding second after its worker's last
// call.
func TestAJumpOfTemporalsTimeLetsNoSharesOverlap(t *testing.T) {
	for _, c := range []struct{ jump, sent time.Duration }{
		{3900 * time.Millisecond, 0},
		{400 * time.Millisecond, contract.SendWithin},
	} {
		w := opened(t)
		asked := w.now
		require.Equal(t, 10, w.renew("a", 10, 99).Calls)
		w.pass(c.jump)
		for w.renew("b", 10, 99).Calls == 0 {
			w.pass(10 * time.Millisecond)
		}
		granted := w.now.Add(-c.jump)
		require.GreaterOrEqual(t, granted.Sub(asked.Add(contract.ShareUse+c.sent)), time.Second)
	}
	require.GreaterOrEqual(t, contract.SendWithin, 3*time.Second, "time to connect")
}

// A lease ends at its TTL, not a moment earlier nor later.
func TestALeaseEndsAtItsTTL(t *testing.T) {
	w := opened(t)
	w.renew("a", 10, 99)
	w.pass(contract.ShareTTL - 1)
	require.Zero(t, w.renew("b", 10, 99).Calls)
	w.pass(1)
	require.Equal(t, 10, w.renew("b", 10, 99).Calls)
}

// What a leaving worker says it has just called counts for more than a second.
func TestALeavingWorkersLastCallsStillCount(t *testing.T) {
	w := opened(t)
	w.renew("a", 10, 99)
	left := w.now
	w.renew("a", 10, 99, func(r *contract.ShareRequest) { r.Leaving = true }) // it holds 10
	for w.renew("b", 10, 99).Calls == 0 {
		w.pass(10 * time.Millisecond)
	}
	require.Equal(t, 2*time.Second, w.now.Sub(left))
}

func TestSet(t *testing.T) {
	w := opened(t)
	started := func(at time.Time) func(*contract.ShareRequest) {
		return func(r *contract.ShareRequest) { r.Started = at }
	}
	require.Equal(t, 20, w.renew("a", 20, 99).Limit)
	allot.Set(w.state, w.now, 5)
	require.Equal(t, 5, w.renew("a", 20, 99).Limit)
	require.Equal(t, 5, w.renew("a2", 20, 99, started(epoch.Add(time.Second))).Limit, "a restart changes nothing")
	require.Equal(t, 30, w.renew("b", 30, 99, started(epoch.Add(2*time.Second))).Limit, "another UPSTREAM_RPS does")
	require.Equal(t, 30, w.renew("a2", 20, 99, started(epoch.Add(time.Second))).Limit, "an older process has no say")
	allot.Set(w.state, w.now, 0)
	require.Zero(t, w.renew("b", 30, 99).Limit, "a pause")
	require.Zero(t, w.renew("b", 30, 99).Calls)

	before := opened(t)
	allot.Set(before.state, before.now, 7)
	require.Equal(t, 7, before.renew("a", 20, 99).Limit, "set before the first worker came")
}

// What a worker takes for the date has no weight: the latest to start decides, and
// nobody else does while it runs.
func TestAWorkersDateDoesNotDecideTheBudget(t *testing.T) {
	for _, ahead := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		w := opened(t)
		asks := func(worker string, rps int, age, ahead time.Duration) int {
			return w.renew(worker, rps, 999, func(r *contract.ShareRequest) {
				r.Started, r.Age = w.now.Add(ahead-age), contract.Duration(age)
			}).Limit
		}
		require.Equal(t, 100, asks("wrong", 100, time.Second, ahead))
		w.pass(time.Second)
		require.Equal(t, 10, asks("right", 10, 100*time.Millisecond, 0), "it started later")
		require.Equal(t, 10, asks("wrong", 100, 2*time.Second, ahead))
		w.pass(time.Hour)
		require.Equal(t, 10, asks("wrong", 100, time.Hour+2*time.Second, ahead), "back after a silence")
		w.pass(time.Second)
		require.Equal(t, 20, asks("wrong again", 20, time.Second, ahead))
	}

	// A build that does not say its age.
	w := opened(t)
	w.renew("fast", 100, 999, func(r *contract.ShareRequest) { r.Started = w.now.Add(24 * time.Hour) })
	w.pass(time.Hour)
	w.renew("new", 10, 999, func(r *contract.ShareRequest) { r.Started = w.now.Add(-time.Second) })
	require.Equal(t, 10, allot.Budget(w.state))
}

func TestThrottledLowersTheFleet(t *testing.T) {
	w := opened(t)
	throttled := func(after time.Duration) func(*contract.ShareRequest) {
		return func(r *contract.ShareRequest) { r.Throttled, r.RetryAfter = 3, contract.Duration(after) }
	}
	require.Equal(t, 100, w.renew("a", 100, 999).Limit)
	require.Equal(t, 50, w.renew("a", 100, 999, throttled(0)).Limit)
	w.pass(time.Second)
	require.Equal(t, 51, w.renew("b", 100, 999, throttled(0)).Limit, "the same burst")
	w.pass(14 * time.Second)
	require.Equal(t, 75, w.renew("b", 100, 999).Limit, "recovers by half of the budget in 30 s")
	w.pass(time.Minute)
	require.Equal(t, 100, w.renew("b", 100, 999).Limit)

	require.Zero(t, w.renew("b", 100, 999, throttled(10*time.Second)).Limit, "Retry-After")
	w.pass(9900 * time.Millisecond)
	share := w.renew("a", 100, 999)
	require.Zero(t, share.Calls, "for everybody")
	require.Equal(t, w.now.Add(100*time.Millisecond), share.PausedUntil, "the reason is told")
	w.pass(100 * time.Millisecond)
	share = w.renew("a", 100, 999)
	require.Equal(t, 50, share.Limit, "a pause recovers nothing")
	require.True(t, share.PausedUntil.IsZero(), "it has passed")
	w.renew("a", 100, 999, throttled(time.Hour))
	w.pass(time.Minute)
	require.Positive(t, w.renew("a", 100, 999).Limit, "a pause is a minute at most")

	for range 20 {
		w.pass(2 * time.Second)
		w.renew("a", 100, 999, throttled(0))
	}
	require.Positive(t, w.renew("a", 100, 999).Limit, "never none: nobody would find out that upstream is back")
}

// An outage: 3 workers renew as they are told, and nobody gets anything but
// probes, of which there are at most 16 in 90 s.
func TestOutage(t *testing.T) {
	w := opened(t)
	w.settle(20, map[string]int{"0": 99, "1": 99, "2": 99})
	w.renew("1", 20, 99, func(r *contract.ShareRequest) { r.Throttled = 1 }) // its first sign: a 503
	event := func(open bool, epoch int64) func(*contract.ShareRequest) {
		return func(r *contract.ShareRequest) {
			r.Breaker = &contract.BreakerEvent{Open: open, Cause: "503 for everybody", Epoch: epoch}
		}
	}
	opening := w.now
	share := w.renew("1", 20, 99, event(true, 0))
	require.Equal(t, contract.Breaker{Open: true, Since: w.now, Cause: "503 for everybody", Epoch: 1}, share.Breaker)
	require.Zero(t, share.Calls)
	probes, last := 0, opening
	next := map[string]time.Time{"0": w.now, "1": w.now, "2": w.now}
	for w.now.Before(opening.Add(90 * time.Second)) {
		for name, at := range next {
			if w.now.Before(at) {
				continue
			}
			share := w.renew(name, 20, 99, func(r *contract.ShareRequest) { r.Held = 0 }, event(true, 0))
			require.Equal(t, int64(1), share.Breaker.Epoch, "it is open already")
			if share.Probe {
				require.GreaterOrEqual(t, w.now.Sub(last), 5*time.Second)
				last = w.now
				probes++
			} else {
				require.Zero(t, share.Calls)
			}
			next[name] = w.now.Add(time.Duration(share.Renew))
		}
		w.pass(10 * time.Millisecond)
	}
	require.GreaterOrEqual(t, probes, 15)
	require.LessOrEqual(t, probes, 16)

	back := w.renew("2", 20, 99, event(false, 1), func(r *contract.ShareRequest) { r.Held = 0 })
	require.Equal(t, contract.Breaker{Epoch: 2}, back.Breaker)
	require.Equal(t, 20, back.Limit, "what was demanded when it broke down says nothing now")
	require.Positive(t, back.Calls)
	require.False(t, w.renew("0", 20, 99, event(true, 1)).Breaker.Open, "an observation from before the probe that succeeded")
	require.True(t, w.renew("0", 20, 99, event(true, 2)).Breaker.Open)
}

// An opening is refuted by a call of another worker that began after the first
// failure of its proof, whichever is told first. Nothing else refutes it.
func TestAnOpeningIsRefutedByTheSuccessOfAnother(t *testing.T) {
	for _, c := range []struct {
		name    string
		success time.Duration // of b, after a's first failure
		known   bool          // before a opens
		old     bool          // a's build does not say since when
		own     bool          // it is a's
		want    bool
	}{
		{name: "known", success: time.Second, known: true, want: true},
		{name: "told afterwards", success: time.Second, want: true},
		{name: "before the failures", success: -time.Second},
		{name: "before the failures, known", success: -time.Second, known: true},
		{name: "within what clocks differ by", success: 250 * time.Millisecond},
		{name: "its own", success: time.Second, own: true},
		{name: "of an older build", success: time.Second, old: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := opened(t)
			w.settle(10, map[string]int{"a": 99, "b": 99})
			first := w.now
			who, since := "b", first
			if c.own {
				who = "a"
			}
			if c.old {
				since = time.Time{}
			}
			w.pass(2 * time.Second)
			if c.known {
				w.renew(who, 10, 99, began(first.Add(c.success)))
			}
			a := w.renew("a", 10, 99, opens(since, 0))
			require.True(t, a.Breaker.Open, "for a in any case")
			require.Zero(t, a.Calls)
			b := w.renew(who, 10, 99, began(first.Add(c.success)))
			if !c.want {
				require.True(t, b.Breaker.Open)
				require.True(t, w.state.Breaker.Open, "for all")
				return
			}
			require.False(t, b.Breaker.Open)
			require.Positive(t, b.Limit)
			a = w.renew("a", 10, 99, opens(since, 0))
			require.True(t, a.Breaker.Open)
			require.Equal(t, "this worker alone: 401", a.Breaker.Cause)
			require.False(t, w.renew("b", 10, 99).Breaker.Open, "said again")
		})
	}
}

// A worker that is out alone gets one call every 5.7 s, others get what it had, and
// its success brings it back.
func TestAWorkerThatIsOutAloneProbes(t *testing.T) {
	w := opened(t)
	w.settle(10, map[string]int{"0": 99, "1": 99})
	since := w.now.Add(-2 * time.Second)
	w.renew("1", 10, 99, func(r *contract.ShareRequest) { r.Succeeded = w.now })
	out := w.renew("0", 10, 99, func(r *contract.ShareRequest) {
		r.Breaker = &contract.BreakerEvent{Open: true, Cause: "timeout for everybody", Since: since}
	})
	require.Zero(t, out.Calls)
	probes, opening, last, most := 0, w.now, w.now, 0
	next := map[string]time.Time{"0": w.now, "1": w.now}
	for w.now.Before(opening.Add(time.Minute)) {
		for name, at := range next {
			if w.now.Before(at) {
				continue
			}
			share := w.renew(name, 10, 99, func(r *contract.ShareRequest) {
				if name == "0" {
					r.Held = 0
				}
			})
			next[name] = w.now.Add(time.Duration(share.Renew))
			switch {
			case name == "1":
				most = max(most, share.Calls)
				require.GreaterOrEqual(t, share.Calls, 5)
			case share.Calls > 0:
				require.True(t, share.Probe)
				require.Equal(t, 1, share.Calls)
				require.GreaterOrEqual(t, w.now.Sub(last), 5*time.Second)
				probes, last = probes+1, w.now
			}
		}
		w.pass(10 * time.Millisecond)
	}
	require.Equal(t, 10, most)
	require.GreaterOrEqual(t, probes, 4)
	status := allot.Status(w.state, w.now)
	require.Equal(t, "this worker alone: timeout", status.Workers[0].Out.Cause)
	require.Nil(t, status.Workers[1].Out)

	w.renew("0", 10, 99, func(r *contract.ShareRequest) { r.Breaker = &contract.BreakerEvent{Epoch: out.Breaker.Epoch} })
	shares := w.settle(10, map[string]int{"0": 99, "1": 99})
	require.Equal(t, map[string]int{"0": 5, "1": 5}, shares)
}

// Workers that have nothing to call for get no probe: it would be wasted.
func TestAnIdleWorkerGetsNoProbe(t *testing.T) {
	w := opened(t)
	w.renew("a", 20, 9, func(r *contract.ShareRequest) {
		r.Breaker = &contract.BreakerEvent{Open: true, Cause: "timeout for everybody"}
	})
	w.pass(allot.ProbeEvery)
	require.False(t, w.renew("b", 20, 0).Probe)
	require.True(t, w.renew("a", 20, 1, func(r *contract.ShareRequest) { r.Held = 0 }).Probe)
}

// A probe is a call like any other: none while upstream wants no calls at all, nor
// while a budget does not know what is still in use.
func TestAProbeWaitsLikeAnyOtherCall(t *testing.T) {
	probed := func(w *world) time.Time {
		for !w.renew("a", 20, 9, func(r *contract.ShareRequest) { r.Held = 0 }).Probe {
			w.pass(50 * time.Millisecond)
		}
		return w.now
	}
	open := func(after time.Duration) func(r *contract.ShareRequest) {
		return func(r *contract.ShareRequest) {
			r.Breaker = &contract.BreakerEvent{Open: true, Cause: "503 for everybody"}
			r.RetryAfter = contract.Duration(after)
		}
	}
	w := opened(t)
	opening := w.now
	w.renew("a", 20, 9, open(0))
	require.Equal(t, allot.ProbeEvery, probed(w).Sub(opening).Round(100*time.Millisecond))

	w = opened(t)
	opening = w.now
	w.renew("a", 20, 9, open(30*time.Second))
	require.Equal(t, 30*time.Second, probed(w).Sub(opening), "Retry-After")

	w = &world{t: t, state: allot.New(epoch), now: epoch, held: map[string]int{}}
	w.renew("a", 20, 9, open(0))
	require.Equal(t, contract.ShareTTL, probed(w).Sub(epoch), "no memory")
}

func TestStatus(t *testing.T) {
	w := opened(t)
	w.renew("a", 20, 3)
	w.pass(time.Second)
	status := allot.Status(w.state, w.now)
	require.Equal(t, 20, status.Budget)
	require.Equal(t, 20, status.Limit)
	require.Equal(t, 3, status.Leased)
	require.Len(t, status.Workers, 1)
	require.True(t, status.WaitsUntil.IsZero())
	require.Empty(t, allot.Status(w.state, w.now.Add(time.Hour)).Workers)
	require.Len(t, w.state.Workers, 1, "looking changes nothing")
	require.Equal(t, epoch.Add(contract.ShareTTL), allot.Status(allot.New(epoch), epoch).WaitsUntil)
}
