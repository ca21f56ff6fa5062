package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// discarding returns a run of a parked account.
func discarding(t *testing.T, do answer) (*run, contract.AccountSyncInput) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0)), change(2, at(1))}
	in.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
	r := newRun(t, at(4000), do)
	return r, in
}

func (r *run) giveUp(after time.Duration, ranges ...contract.Range) {
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalDiscard, contract.Discard{Ranges: ranges, Operator: "ada", Reason: "test data"})
	}, after)
}

func TestDiscardDropsWhatWasShownAndNothingElse(t *testing.T) {
	r, in := discarding(t, nil)
	r.giveUp(0, in.Pending...)
	result := r.completed(t, in)
	require.Equal(t, contract.OutcomeDiscarded, result.Outcome)
	require.Empty(t, result.Covered)
	require.Equal(t, []contract.Discarded{{
		Account: "alice", Number: 1, Dropped: in.Pending, Operator: "ada", Reason: "test data", At: at(4000), Tries: 3,
	}}, r.recorded)

	r, in = discarding(t, calledAt)
	r.signal(0, change(3, at(3990)))
	r.giveUp(0, in.Pending...)
	require.Equal(t, []int64{3}, offsets(r.completed(t, in).Covered), "it came after the operator looked")
	require.Equal(t, []int64{3}, offsets(r.seen[0].Pending))
	require.Len(t, r.recorded, 1)
}

func TestDiscardDuringAnAttemptThatFails(t *testing.T) {
	r, in := discarding(t, nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(5 * time.Second).Return(
		failing(contract.FailedAttempt{Class: contract.ClassRefused, At: at(4000), Charged: true})(contract.SyncInput{}))
	r.giveUp(time.Second, in.Pending...)
	require.Equal(t, contract.OutcomeDiscarded, r.completed(t, in).Outcome)
	require.Equal(t, []int64{1, 2}, offsets(r.recorded[0].Dropped))

	r, in = discarding(t, nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(5 * time.Second).Return(
		failing(contract.FailedAttempt{Class: contract.ClassRefused, At: at(4000), Charged: true})(contract.SyncInput{}))
	r.giveUp(time.Second, in.Pending[0])
	kind, next, _ := r.continued(t, in)
	require.Equal(t, contract.ParkedAccountSync, kind)
	require.Equal(t, []int64{2}, offsets(next.Pending))
}

// A newer call has written meanwhile, which covers nothing here and serves no order.
func TestDiscardDuringAnAttemptThatIsFenced(t *testing.T) {
	fenced := func(given ...contract.Range) *run {
		r, _ := discarding(t, nil)
		r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(5*time.Second).Return(
			contract.SyncResult{Outcome: contract.OutcomeFenced, CalledAt: at(4000)}, nil)
		r.giveUp(time.Second, given...)
		return r
	}
	_, in := discarding(t, nil)
	r := fenced(in.Pending...)
	require.Equal(t, contract.OutcomeDiscarded, r.completed(t, in).Outcome)
	require.Equal(t, []int64{1, 2}, offsets(r.recorded[0].Dropped))

	r = fenced(in.Pending[0])
	_, next, wait := r.continued(t, in)
	require.Equal(t, []int64{2}, offsets(next.Pending))
	require.Zero(t, wait)
	require.Len(t, r.recorded, 1)
}

// An account that is parked with nothing but replays would stay so for ever. Those
// that the operator was shown are given up, and no others.
func TestDiscardReleasesAnAccountFromReplays(t *testing.T) {
	parkedWith := func(do answer, ids ...string) (*run, contract.AccountSyncInput) {
		r, in := discarding(t, do)
		in.Pending = nil
		for _, id := range ids {
			in.Replays = append(in.Replays, contract.ReplayRequest{ID: id})
		}
		r.env.RegisterDelayedCallback(func() {
			r.env.SignalWorkflow(contract.SignalDiscard, contract.Discard{Replays: []string{"r1", "r2"}, Operator: "ada", Reason: "gone"})
		}, 0)
		return r, in
	}
	r, in := parkedWith(nil, "r1", "r2")
	require.Equal(t, contract.OutcomeDiscarded, r.completed(t, in).Outcome)
	require.Equal(t, []contract.Discarded{{Account: "alice", Number: 1, Operator: "ada", Reason: "gone", At: at(4000), Tries: 3, ReplayID: "r1,r2"}}, r.recorded)

	r, in = parkedWith(calledAt, "r1", "r3")
	require.Equal(t, []string{"r3"}, r.completed(t, in).Replayed.IDs)
	require.Equal(t, "r1", r.recorded[0].ReplayID)
}

func TestSignalWhileADiscardIsRecordedIsNotLost(t *testing.T) {
	r, in := discarding(t, calledAt)
	r.env.OnActivity(contract.RecordDiscard, mock.Anything, mock.Anything).After(5 * time.Second).Return(nil)
	r.giveUp(0, in.Pending...)
	r.signal(time.Second, change(3, at(3000)))
	require.Equal(t, []int64{3}, offsets(r.completed(t, in).Covered))
}

func TestWhatIsNotOnRecordIsNotDropped(t *testing.T) {
	r, in := discarding(t, calledAt)
	r.env.OnActivity(contract.RecordDiscard, mock.Anything, mock.Anything).Return(
		temporal.NewNonRetryableApplicationError("refused", "Refused", nil))
	r.giveUp(0, in.Pending...)
	require.Equal(t, []int64{1, 2}, offsets(r.completed(t, in).Covered))
}

func TestDiscardIsNotForAccountsThatWork(t *testing.T) {
	r, in := discarding(t, calledAt)
	in.Failure = nil
	r.giveUp(0, in.Pending...)
	require.Equal(t, []int64{1, 2}, offsets(r.completed(t, in).Covered))
	require.Empty(t, r.recorded)
}

// A change that was signalled during the call had settled for it by time, but the
// response is known to be older.
func TestAResponseOlderThanAChangeDoesNotCoverIt(t *testing.T) {
	r := newRun(t, at(30), nil)
	number := func(text string) contract.Version {
		v, err := contract.ParseVersion(text)
		require.NoError(t, err)
		return v
	}
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(2*time.Second).Return(
		contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(30), Version: number("7")}, nil)
	late, known := change(2, at(9)), change(3, at(9.5))
	late.Version, known.Version = number("8"), number("7")
	r.signal(0, change(1, at(0)))
	r.signal(time.Second, late, known)
	_, next, wait := r.continued(t, fresh())
	require.ElementsMatch(t, []int64{1, 3}, offsets(next.Covered))
	require.Equal(t, []int64{2}, offsets(next.Pending))
	require.Equal(t, at(39), at(32).Add(wait))
}
