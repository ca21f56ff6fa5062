package dispatch_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const alice = "crm/account/alice"

func TestChangesOfOneAccountShareARun(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		began := time.Now()
		b.change(t, "alice")
		pass(50 * time.Millisecond)
		b.change(t, "alice")
		pass(5 * time.Second)
		b.change(t, "alice")
		pass(2 * time.Second)

		require.Equal(t, 1, b.temporal.started)
		require.Zero(t, b.temporal.woken, "a waiting run is not woken")
		require.Len(t, b.temporal.signals, 2)
		require.Equal(t, 2, contract.Count(b.temporal.signals[0].Ranges), "LINGER gathers the first two")
		require.Len(t, b.temporal.signals[0].Ranges, 1)
		require.Equal(t, began.Add(30*time.Second), b.temporal.open[alice].start.Due, "first change + D")
		require.Zero(t, b.held(), "durable in Temporal, so not in the buffer any more")
		require.Zero(t, b.watermark(), "accepted is not covered")

		pass(23 * time.Second)
		b.temporal.finish(alice, complete)
		synctest.Wait()
		require.EqualValues(t, 3, b.watermark())
		require.Zero(t, b.temporal.reads, "nothing is read of a run that was started here")
	})
}

func TestBacklogWaitsToCoalesce(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.fail = func(string) error { return errors.New("away") }
		b.change(t, "alice")
		pass(time.Hour) // long due by now
		b.temporal.mu.Lock()
		b.temporal.fail = nil
		b.temporal.mu.Unlock()
		pass(11 * time.Second)
		require.Len(t, b.temporal.signals, 1)
		require.Equal(t, 2*time.Second, b.temporal.open[alice].start.Due.Sub(b.temporal.signals[0].at))
	})
}

func TestOnlyWhatARunListsIsCovered(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(2 * time.Second)
		b.change(t, "alice") // a failover of Temporal will forget this one
		pass(28 * time.Second)
		b.temporal.finish(alice, func(pending []contract.Range) run.End { return run.End{Covered: pending[:1]} })
		pass(2 * time.Second)

		require.EqualValues(t, 1, b.watermark())
		require.Equal(t, 2, b.temporal.started, "the forgotten change is signalled again")
		b.temporal.finish(alice, complete)
		pass(time.Minute)
		require.EqualValues(t, 2, b.watermark())
	})
}

func TestPendingChangesMoveToTheSuccessor(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(15 * time.Second)
		b.change(t, "alice")
		pass(15 * time.Second)
		b.temporal.finish(alice, func(pending []contract.Range) run.End {
			return run.End{Covered: pending[:1], Next: &run.Start{
				Due:   time.Now().Add(15 * time.Second),
				Input: contract.AccountSyncInput{Account: "alice", Pending: pending[1:]},
			}}
		})
		pass(20 * time.Second)
		require.EqualValues(t, 1, b.watermark())
		require.Len(t, b.temporal.signals, 2, "what the successor carries is not signalled again")

		b.temporal.finish(alice, complete)
		synctest.Wait()
		require.EqualValues(t, 2, b.watermark())
	})
}

// TestWhatASuccessorDoesNotCarryIsSignalledAgain: a run that continues has not
// covered, nor handed on, what it does not list.
func TestWhatASuccessorDoesNotCarryIsSignalledAgain(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(15 * time.Second)
		b.change(t, "alice")
		pass(time.Second)
		b.change(t, "alice") // a failover of Temporal forgets this one
		pass(14 * time.Second)
		b.temporal.finish(alice, func(pending []contract.Range) run.End {
			return run.End{Covered: pending[:1], Next: &run.Start{
				Due:   time.Now().Add(15 * time.Second),
				Input: contract.AccountSyncInput{Account: "alice", Pending: pending[1:2]},
			}}
		})
		pass(2 * time.Second)
		require.EqualValues(t, 1, b.watermark())
		require.Len(t, b.temporal.signals, 4)
		require.True(t, b.temporal.signals[3].Ranges[0].Contains(source, contract.Position{Offset: 2}))
		b.temporal.finish(alice, complete)
		pass(20 * time.Second)
		require.EqualValues(t, 3, b.watermark())
	})
}

func TestParkedRunOwnsItsChanges(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(30 * time.Second)
		b.temporal.finish(alice, func(pending []contract.Range) run.End {
			return run.End{Next: &run.Start{Due: time.Now().Add(10 * time.Minute), Input: contract.AccountSyncInput{
				Account: "alice", Pending: pending, Failure: &contract.Failure{Parked: true},
			}}}
		})
		synctest.Wait()
		require.EqualValues(t, 1, b.watermark())

		for range 20 { // it goes on taking changes
			b.change(t, "alice")
			pass(500 * time.Millisecond)
		}
		pass(3 * time.Second)
		require.EqualValues(t, 21, b.watermark())
		require.LessOrEqual(t, len(b.temporal.signals), 12, "paced like any other account")
		require.Equal(t, 1, b.temporal.reads, "how the parked run began is read once")
	})
}

func TestParkedIsWhatTheRunSaysNotWhatItWas(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin(alice, run.Start{Due: time.Now(), Input: contract.AccountSyncInput{
			Account: "alice", Failure: &contract.Failure{Parked: true},
		}})
		b.change(t, "alice")
		pass(time.Second)
		require.EqualValues(t, 1, b.watermark())
		b.temporal.finish(alice, complete) // it recovered

		b.change(t, "alice")
		pass(2 * time.Second)
		require.EqualValues(t, 1, b.watermark(), "the new run is not parked")
		b.temporal.finish(alice, complete)
		pass(time.Minute)
		require.EqualValues(t, 2, b.watermark())
	})
}

// TestRecoveredAccountIsPacedByItsPresentRun: a day of being parked must not slow
// its signals down for ever.
func TestRecoveredAccountIsPacedByItsPresentRun(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin(alice, run.Start{Due: time.Now(), Input: contract.AccountSyncInput{
			Account: "alice", Failure: &contract.Failure{Parked: true},
			Pending: []contract.Range{{Oldest: time.Now().Add(-24 * time.Hour), Newest: time.Now().Add(-24 * time.Hour)}},
		}})
		b.change(t, "alice")
		pass(time.Second)
		b.temporal.finish(alice, complete) // it recovered
		before := len(b.temporal.signals)
		for range 30 {
			b.change(t, "alice")
			pass(20 * time.Second)
		}
		require.Len(t, b.temporal.signals, before+30, "the new run has been open for ten minutes at most")
	})
}

func TestRunsThatBreakOffAreStartedAgain(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		for i := range 3 {
			pass(30 * time.Second)
			require.Equal(t, i+1, b.temporal.started)
			b.temporal.finish(alice, func([]contract.Range) run.End { return run.End{Broken: "Terminated"} })
		}
		pass(30 * time.Second)
		require.Zero(t, b.watermark())
		b.temporal.finish(alice, complete)
		pass(time.Minute)
		require.EqualValues(t, 1, b.watermark())
		records, bytes := b.buffer.Held()
		require.Zero(t, records, "room is given back once, however often a change is signalled")
		require.Zero(t, bytes)
	})
}

func TestRunsThatVanishAreStartedAgain(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(time.Second)
		b.temporal.mu.Lock()
		clear(b.temporal.open)
		clear(b.temporal.all)
		b.temporal.mu.Unlock()
		pass(time.Minute)
		require.Equal(t, 2, b.temporal.started)
	})
}

func TestAdoptsRunsItDidNotStart(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin(alice, run.Start{Due: time.Now().Add(10 * time.Second)})
		b.change(t, "alice")
		pass(5 * time.Second)
		require.Zero(t, b.temporal.started)
		require.Equal(t, 1, b.temporal.reads)
		b.temporal.finish(alice, complete)
		pass(10 * time.Second)
		require.EqualValues(t, 1, b.watermark())
	})
}

func TestTemporalAwayForAMinuteLosesNothing(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		var tries atomic.Int64 // the lanes try side by side
		b.temporal.fail = func(string) error {
			tries.Add(1)
			return serviceerror.NewUnavailable("no leader")
		}
		for i := range 10 {
			b.change(t, fmt.Sprint("account-", i))
		}
		pass(time.Minute)
		require.Equal(t, 10, b.held(), "not durable, so still in the buffer")
		require.Contains(t, b.Status().LastError, "no leader")
		require.Less(t, tries.Load(), int64(300), "10 accounts, backed off")

		b.temporal.mu.Lock()
		b.temporal.fail = nil
		b.temporal.mu.Unlock()
		pass(15 * time.Second)
		require.Equal(t, 10, b.temporal.started)
		require.Zero(t, b.held())
	})
}

func TestRevokedChangesAreForgotten(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.fail = func(string) error { return serviceerror.NewUnavailable("away") }
		b.change(t, "alice")
		pass(time.Second)
		old := b.assignment
		old.Drop()
		b.assign(0) // and it comes back: A-B-A
		b.change(t, "alice")
		b.temporal.mu.Lock()
		b.temporal.fail = nil
		b.temporal.mu.Unlock()
		pass(31 * time.Second)
		require.Zero(t, b.held(), "forgotten changes give their room back")
		b.temporal.finish(alice, complete)
		synctest.Wait()
		require.EqualValues(t, 1, b.watermark())
		require.Zero(t, old.State().Watermark, "nothing counts for the old assignment")
	})
}

// TestTakenChangesOfRevokedAssignmentsAreForgotten: the runs that have them may
// end hours later, and until then nothing is kept for them, nor asked.
func TestTakenChangesOfRevokedAssignmentsAreForgotten(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		const accounts = 50
		give := func() {
			for i := range accounts {
				b.change(t, fmt.Sprint("account-", i))
			}
		}
		give()
		pass(5 * time.Second)
		require.Equal(t, accounts, b.watcher.Open())
		for range 10 { // away and back
			b.assignment.Drop()
			pass(2 * time.Second)
			require.Zero(t, b.watcher.Open())
			b.assign(0)
			give()
			pass(5 * time.Second)
			require.Equal(t, accounts, b.watcher.Open(), "one watch each, however often")
			require.Equal(t, accounts, b.Status().Accounts)
		}
		// One that is still to be accepted when it is taken away.
		b.temporal.mu.Lock()
		b.temporal.fail = func(string) error { return serviceerror.NewUnavailable("away") }
		b.temporal.mu.Unlock()
		b.change(t, "late")
		pass(500 * time.Millisecond)
		b.assignment.Drop()
		pass(2 * time.Second)
		b.temporal.mu.Lock()
		b.temporal.fail = nil
		b.temporal.mu.Unlock()
		pass(2 * time.Minute)
		require.Zero(t, b.watcher.Open())
		require.Zero(t, b.Status().Accounts)
		require.Zero(t, b.held())
	})
}

// TestErrorOfWhatIsForgottenIsForgotten: how the run began could not be read, and
// is nobody's business any more.
func TestErrorOfWhatIsForgottenIsForgotten(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin(alice, run.Start{Due: time.Now().Add(time.Hour)})
		b.temporal.refuse = func(changes contract.Changes) error {
			if len(changes.Ranges) == 0 { // reads of how a run began
				return serviceerror.NewPermissionDenied("history", "")
			}
			return nil
		}
		b.change(t, "alice")
		pass(5 * time.Second)
		require.Contains(t, b.Status().LastError, "history")
		b.assignment.Drop()
		pass(15 * time.Second)
		require.Empty(t, b.Status().LastError)
	})
}

func TestHotAccountIsCheap(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		for range 25 * 100 {
			b.change(t, "alice")
			pass(10 * time.Millisecond)
		}
		pass(2 * time.Second)
		require.LessOrEqual(t, len(b.temporal.signals), 27, "one a second")
		ranges := 0
		for _, s := range b.temporal.signals {
			ranges += len(s.Ranges)
		}
		require.LessOrEqual(t, ranges, 30, "2,500 changes")
		b.temporal.finish(alice, complete)
		pass(30 * time.Second)
		require.EqualValues(t, 2500, b.watermark())
	})
}

func TestSlowAccountStallsOneLaneOnly(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.fail = func(workflowID string) error {
			if workflowID == alice {
				time.Sleep(time.Hour)
			}
			return nil
		}
		b.change(t, "alice")
		pass(time.Second) // her lane waits from here on
		for i := range 40 {
			b.change(t, fmt.Sprint("account-", i))
		}
		pass(10 * time.Second)
		require.Greater(t, b.temporal.started, 3, "the other lane goes on")
		require.Less(t, b.temporal.started, 40, "one lane waits")
		require.Equal(t, 1, b.Status().Busy)
		pass(2 * time.Hour)
	})
}
