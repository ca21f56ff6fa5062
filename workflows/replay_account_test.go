package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func (r *run) replay(after time.Duration, id string) *run {
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalReplay, contract.ReplayRequest{ID: id, Operator: "ada"})
	}, after)
	return r
}

// TestReplayCallsAtOnce: an account with no change is called, whatever its row
// says, and the run says whom it served.
func TestReplayCallsAtOnce(t *testing.T) {
	r := newRun(t, at(0), func(contract.SyncInput) (contract.SyncResult, error) {
		return contract.SyncResult{Outcome: contract.OutcomeUnchanged, CalledAt: at(1)}, nil
	})
	r.replay(0, "r1").replay(0, "r1").replay(0, "r2")
	result := r.completed(t, fresh())
	require.Len(t, r.seen, 1)
	require.Equal(t, "r1,r2", r.seen[0].ReplayID)
	require.True(t, r.seen[0].NotBefore.IsZero())
	require.Empty(t, r.seen[0].Pending)
	require.Equal(t, &contract.Replayed{IDs: []string{"r1", "r2"}, Outcome: contract.OutcomeUnchanged}, result.Replayed)
}

// TestReplayJoinsLiveChanges: one call for both, when the changes are due.
func TestReplayJoinsLiveChanges(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	r.signal(0, change(1, at(0))).replay(0, "r1")
	result := r.completed(t, fresh())
	require.Len(t, r.seen, 1)
	require.Equal(t, at(30), r.seen[0].NotBefore)
	require.Equal(t, "r1", r.seen[0].ReplayID)
	require.Equal(t, []int64{1}, offsets(result.Covered))
	require.True(t, result.Replayed.Serves("r1"))
}

// TestReplaySaysSinceWhen: a call since the last of the replays began serves them
// all; one of a bridge of before insists on its own.
func TestReplaySaysSinceWhen(t *testing.T) {
	for _, test := range []struct {
		since []time.Time
		want  time.Time
	}{
		{[]time.Time{at(3), at(5), at(4)}, at(5)},
		{[]time.Time{at(3), {}, at(4)}, time.Time{}},
	} {
		r := newRun(t, at(30), calledAt)
		in := fresh()
		for i, since := range test.since {
			in.Replays = append(in.Replays, contract.ReplayRequest{ID: fmt.Sprint("r", i), Since: since})
		}
		r.completed(t, in)
		require.True(t, test.want.Equal(r.seen[0].ReplaySince), r.seen[0].ReplaySince)
	}
}

// TestReplayReportsThePayload that the call found, whether the run ends or goes
// on.
func TestReplayReportsThePayload(t *testing.T) {
	payload := &contract.PayloadChange{Before: "1", After: "2"}
	answer := func(in contract.SyncInput) (contract.SyncResult, error) {
		return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(1), Payload: payload}, nil
	}
	r := newRun(t, at(0), answer)
	require.Equal(t, payload, r.replay(0, "r1").completed(t, fresh()).Replayed.Payload)
	r = newRun(t, at(0), answer)
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	in.Replays = []contract.ReplayRequest{{ID: "r1"}}
	_, next, _ := r.continued(t, in)
	require.Equal(t, payload, next.Replayed.Payload)
}

// TestLiveChangeRidesAlong with a replay's call that was queued for so long that
// the change has settled for it, though the call was asked for without it.
func TestLiveChangeRidesAlong(t *testing.T) {
	for _, test := range []struct {
		calledAt time.Time
		rides    bool
	}{{at(21), true}, {at(20), false}} {
		r := newRun(t, at(0), nil)
		r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(25 * time.Second).Return(
			func(_ context.Context, in contract.SyncInput) (contract.SyncResult, error) {
				require.Empty(t, in.Pending)
				return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: test.calledAt}, nil
			})
		r.replay(0, "r1").signal(time.Second, change(1, at(1)))
		if test.rides {
			require.Equal(t, []int64{1}, offsets(r.completed(t, fresh()).Covered))
			continue
		}
		_, next, _ := r.continued(t, fresh())
		require.Equal(t, []int64{1}, offsets(next.Pending), "not settled for that call: it needs its own")
	}
}

// TestReplayThatComesDuringTheCall gets a call of its own: the one under way may
// have begun before it was asked for.
func TestReplayThatComesDuringTheCall(t *testing.T) {
	r := newRun(t, at(30), nil)
	r.slow(time.Second)
	r.signal(0, change(1, at(0))).replay(0, "r1").replay(500*time.Millisecond, "r2")
	name, next, wait := r.continued(t, fresh())
	require.Equal(t, contract.AccountSync, name)
	require.Zero(t, wait)
	require.Equal(t, []int64{1}, offsets(next.Covered))
	require.Equal(t, []contract.ReplayRequest{{ID: "r2", Operator: "ada"}}, next.Replays)
	require.True(t, next.Replayed.Serves("r1"))
	require.False(t, next.Replayed.Serves("r2"))

	r = newRun(t, at(31), calledAt)
	result := r.completed(t, next)
	require.Equal(t, "r2", r.seen[0].ReplayID)
	require.Equal(t, []string{"r2"}, result.Replayed.IDs)
}

// TestReplayOutlivesFailures: a failed attempt, and a fenced one, keep it.
func TestReplayOutlivesFailures(t *testing.T) {
	for name, do := range map[string]answer{
		"failed": failing(contract.FailedAttempt{Class: contract.ClassTransient, Charged: true}),
		"fenced": func(contract.SyncInput) (contract.SyncResult, error) {
			return contract.SyncResult{Outcome: contract.OutcomeFenced, CalledAt: at(1)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, at(0), do)
			_, next, _ := r.replay(0, "r1").continued(t, fresh())
			require.Equal(t, []contract.ReplayRequest{{ID: "r1", Operator: "ada"}}, next.Replays)
			require.Nil(t, next.Replayed)
		})
	}
	t.Run("parked", func(t *testing.T) {
		r := newRun(t, at(0), failing(contract.FailedAttempt{Class: contract.ClassTransient, Charged: true}))
		in := fresh()
		in.Failure = &contract.Failure{Count: 2, Tries: 2}
		in.Replays = []contract.ReplayRequest{{ID: "r1"}}
		name, next, _ := r.continued(t, in)
		require.Equal(t, contract.ParkedAccountSync, name)
		require.True(t, next.Parked())
		require.Len(t, next.Replays, 1)
	})
}

// TestReplayLeavesLateJoinersTheirCall: a change that had not settled for the
// replay's call is called for when it is due.
func TestReplayLeavesLateJoinersTheirCall(t *testing.T) {
	r := newRun(t, at(10), nil)
	r.slow(time.Second)
	r.replay(0, "r1").signal(500*time.Millisecond, change(1, at(9)))
	_, next, wait := r.continued(t, fresh())
	require.Equal(t, []int64{1}, offsets(next.Pending))
	require.Empty(t, next.Replays)
	require.True(t, next.Replayed.Serves("r1"))
	require.Equal(t, at(39), at(11).Add(wait).Round(time.Second), "its own change + D")
}

func TestReplayIDsFitTheColumn(t *testing.T) {
	id := "0123456789012345678901234567890"
	var requests []contract.ReplayRequest
	for range 4 {
		requests = append(requests, contract.ReplayRequest{ID: id})
	}
	require.Equal(t, id+","+id, contract.ReplayIDs(requests))
	require.Empty(t, contract.ReplayIDs(nil))
}

// slow mocks a Sync that takes its time.
func (r *run) slow(d time.Duration) {
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(d).Return(
		func(_ context.Context, in contract.SyncInput) (contract.SyncResult, error) {
			if len(r.seen) > 0 {
				return contract.SyncResult{}, errors.New("called twice")
			}
			r.seen = append(r.seen, in)
			return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: in.NotBefore}, nil
		})
}
