package dispatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestBacklogOfOldChangesIsNotPacedByItsAge: a first start at the earliest offset,
// or what is caught up after downtime, where change times are the broker's. What
// comes while a run is open and is not covered by it is signalled at once when
// that run has ended.
func TestBacklogOfOldChangesIsNotPacedByItsAge(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, 10 * time.Hour, 365 * 24 * time.Hour} {
		t.Run(age.String(), func(t *testing.T) {
			inBridge(t, func(t *testing.T, b *bridge) {
				b.admitOf(t, "alice", age)
				pass(time.Second)
				b.admitOf(t, "alice", age)
				b.temporal.finish(alice, complete)
				pass(5 * time.Second)
				require.EqualValues(t, 1, b.watermark())
				b.temporal.finish(alice, complete)
				pass(5 * time.Second)
				require.EqualValues(t, 2, b.watermark())
			})
		})
	}
}

// TestBacklogOfOldChangesGoesOn: as many accounts as BUFFER_RECORDS has places, all
// with old changes of which some come while a run is open, let others in.
func TestBacklogOfOldChangesGoesOn(t *testing.T) {
	inBridgeOf(t, buffer.Config{Records: 100, Bytes: 64 << 20, MaxUncommitted: 1000}, func(t *testing.T, b *bridge) {
		const week = 7 * 24 * time.Hour
		for range 2 {
			for i := range 100 {
				b.admitOf(t, fmt.Sprint("account-", i), week)
			}
			pass(time.Second)
		}
		for id := range b.temporal.ids() {
			b.temporal.finish(id, complete)
		}
		pass(5 * time.Second)
		require.Zero(t, b.held())
		b.change(t, "somebody-else")
	})
}

// TestParkedAccountDoesNotHoldTheWatermark, however long ago it was parked.
func TestParkedAccountDoesNotHoldTheWatermark(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		tenDaysAgo := time.Now().Add(-10 * 24 * time.Hour)
		b.temporal.begin(alice, run.Start{Due: tenDaysAgo, Input: contract.AccountSyncInput{
			Account: "alice", Failure: &contract.Failure{Parked: true},
			Pending: []contract.Range{{Source: source, Count: 1, Oldest: tenDaysAgo, Newest: tenDaysAgo}},
		}})
		for i := range 10 {
			b.change(t, "alice")
			pass(500 * time.Millisecond) // while the account is remembered
			b.change(t, "alice")
			pass(time.Minute + time.Second)
			require.EqualValues(t, 2*i+2, b.watermark(), "2% of ten days are hours")
		}
	})
}

// TestAdoptedRunIsPacedByHowLongItIsOverdue: a bridge that is restarted over and
// over must not bring a run that waits out an outage to its limit of signals.
func TestAdoptedRunIsPacedByHowLongItIsOverdue(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin(alice, run.Start{Due: time.Now().Add(-24 * time.Hour)})
		for range 60 * 60 {
			b.change(t, "alice")
			pass(time.Second)
		}
		require.Len(t, b.temporal.signals, 3, "one every 29 minutes")
	})
}

// TestRangesOfDifferentCallsStayApart: of two changes that share a signal, the
// call that is ahead covers one.
func TestRangesOfDifferentCallsStayApart(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(9960 * time.Millisecond) // the call is made after 30 s, S is 20 s
		b.change(t, "alice")
		pass(80 * time.Millisecond)
		b.change(t, "alice")
		pass(2 * time.Second)
		require.Len(t, b.temporal.signals, 2)
		require.Len(t, b.temporal.signals[1].Ranges, 2)
	})
}

// admitOf admits and submits a change of that age.
func (b *bridge) admitOf(t *testing.T, account string, age time.Duration) {
	t.Helper()
	b.submit(t, buffer.Change{Account: account, Time: time.Now().Add(-age)})
}
