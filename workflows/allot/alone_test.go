package allot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// began tells of a call that succeeded and began then.
func began(at time.Time) func(*contract.ShareRequest) {
	return func(r *contract.ShareRequest) { r.Succeeded = at }
}

// opens tells of calls that fail since then.
func opens(since time.Time, epoch int64) func(*contract.ShareRequest) {
	return func(r *contract.ShareRequest) {
		r.Breaker = &contract.BreakerEvent{Open: true, Cause: "401 for everybody", Since: since, Epoch: epoch}
	}
}

// outAlone returns a world in which a is out and b succeeds.
func outAlone(t *testing.T, rps int) *world {
	w := opened(t)
	w.settle(rps, map[string]int{"a": 99, "b": 99})
	since := w.now.Add(-2 * time.Second)
	w.renew("b", rps, 99, began(w.now))
	w.renew("a", rps, 99, opens(since, w.state.Breaker.Epoch))
	require.NotNil(t, w.state.Workers[0].Out)
	require.False(t, w.state.Breaker.Open)
	return w
}

// TestAWorkerThatIsOutAloneSlowsNobody: what its probes meet, a proxy of its own
// that answers 503, say, is no demand on the others.
func TestAWorkerThatIsOutAloneSlowsNobody(t *testing.T) {
	for _, retryAfter := range []time.Duration{0, 30 * time.Second} {
		t.Run(retryAfter.String(), func(t *testing.T) {
			w := outAlone(t, 100)
			probes, sum, answers := 0, 0, 0
			throttled := func(r *contract.ShareRequest) { r.Throttled, r.RetryAfter = 1, contract.Duration(retryAfter) }
			probed := false
			for range 480 {
				w.pass(500 * time.Millisecond)
				w.held["a"] = 0
				var a contract.Share
				if probed {
					a = w.renew("a", 100, 99, throttled)
				} else {
					a = w.renew("a", 100, 99)
				}
				if probed = a.Probe; probed {
					probes++
				}
				sum += w.renew("b", 100, 100, began(w.now)).Calls
				answers++
			}
			require.Greater(t, probes, 30)
			require.Greater(t, sum, 95*answers)
		})
	}
}

// TestAWorkerThatIsOutAloneProbesASmallBudget, though others could use all of it.
func TestAWorkerThatIsOutAloneProbesASmallBudget(t *testing.T) {
	for _, rps := range []int{1, 2, 10} {
		t.Run(fmt.Sprint(rps), func(t *testing.T) {
			w := outAlone(t, rps)
			probes := 0
			for range 600 {
				w.pass(500 * time.Millisecond)
				w.held["a"] = 0
				if w.renew("a", rps, 99).Probe {
					probes++
				}
				w.renew("b", rps, 99, began(w.now))
			}
			require.GreaterOrEqual(t, probes, 40)
		})
	}
}

// TestAnOpeningThatIsRefutedAtOnceIsNoTurn: a stray failure before the outage makes
// the row of one worker look like its own trouble. The proofs of the others, which
// come at the same moment, still count.
func TestAnOpeningThatIsRefutedAtOnceIsNoTurn(t *testing.T) {
	w := opened(t)
	w.settle(30, map[string]int{"a": 99, "b": 99, "c": 99})
	outage, epoch := w.now, w.state.Breaker.Epoch
	w.renew("b", 30, 99, began(outage.Add(-500*time.Millisecond)))
	w.pass(1100 * time.Millisecond)
	w.renew("a", 30, 99, opens(outage.Add(-5*time.Second), epoch))
	require.NotNil(t, w.state.Workers[0].Out)
	require.False(t, w.state.Breaker.Open)
	w.pass(10 * time.Millisecond)
	require.True(t, w.renew("b", 30, 99, opens(outage.Add(50*time.Millisecond), epoch)).Breaker.Open)
	require.True(t, w.state.Breaker.Open, "for all")
}

// TestADateAheadThatWasInheritedCountsForNothing: an earlier build wrote down what
// its workers said.
func TestADateAheadThatWasInheritedCountsForNothing(t *testing.T) {
	w := opened(t)
	w.state.Configured, w.state.ConfiguredAt = 50, w.now.Add(24*time.Hour)
	w.renew("new", 10, 1, func(r *contract.ShareRequest) { r.Age = contract.Duration(time.Second) })
	require.Equal(t, 10, allot.Budget(w.state))
}
