package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var settings = contract.Settings{
	Settle:       contract.Duration(20 * time.Second),
	Delay:        contract.Duration(30 * time.Second),
	AttemptLease: contract.Duration(30 * time.Second),
	Heartbeat:    contract.Duration(10 * time.Second),
	ParkAfter:    3,
}

// run is one run in the test environment: what goes in, and what came out.
type run struct {
	env  *testsuite.TestWorkflowEnvironment
	seen []contract.SyncInput

	recorded []contract.Discarded
}

// answer is what the fake activity does.
type answer func(in contract.SyncInput) (contract.SyncResult, error)

func newRun(t *testing.T, start time.Time, do answer) *run {
	t.Helper()
	r := &run{env: new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()}
	r.env.SetStartTime(start)
	workflows.Register(r.env)
	r.env.RegisterActivityWithOptions(
		func(context.Context, contract.SyncInput) (contract.SyncResult, error) { panic("mocked") },
		activity.RegisterOptions{Name: contract.Sync})
	r.env.RegisterActivityWithOptions(func(_ context.Context, d contract.Discarded) error {
		r.recorded = append(r.recorded, d)
		return nil
	}, activity.RegisterOptions{Name: contract.RecordDiscard})
	if do == nil {
		return r // the test mocks Sync itself
	}
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).Return(
		func(_ context.Context, in contract.SyncInput) (contract.SyncResult, error) {
			r.seen = append(r.seen, in)
			return do(in)
		})
	return r
}

func (r *run) signal(after time.Duration, ranges ...contract.Range) *run {
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: ranges, Settings: settings})
	}, after)
	return r
}

// continued executes the run and returns the type and input it continued with.
func (r *run) continued(t *testing.T, in contract.AccountSyncInput) (string, contract.AccountSyncInput, time.Duration) {
	t.Helper()
	r.env.ExecuteWorkflow(contract.AccountSync, in)
	var again *workflow.ContinueAsNewError
	require.True(t, errors.As(r.env.GetWorkflowError(), &again), "want continue-as-new, got %v", r.env.GetWorkflowError())
	var next contract.AccountSyncInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	return again.WorkflowType.Name, next, again.BackoffStartInterval
}

func (r *run) completed(t *testing.T, in contract.AccountSyncInput) contract.AccountSyncResult {
	t.Helper()
	r.env.ExecuteWorkflow(contract.AccountSync, in)
	require.NoError(t, r.env.GetWorkflowError())
	var result contract.AccountSyncResult
	require.NoError(t, r.env.GetWorkflowResult(&result))
	return result
}

func change(offset int64, at time.Time) contract.Range {
	p := contract.Position{Offset: offset}
	return contract.Range{
		Source: contract.Source{TopicID: contract.TopicID{1}, Topic: "accounts"},
		First:  p, Last: p, Count: 1, Oldest: at, Newest: at,
	}
}

func offsets(ranges []contract.Range) []int64 {
	var all []int64
	for _, r := range ranges {
		for o := r.First.Offset; o <= r.Last.Offset; o++ {
			all = append(all, o)
		}
	}
	return all
}

func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// calledAt is a sync that calls when it is due.
func calledAt(in contract.SyncInput) (contract.SyncResult, error) {
	return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: in.NotBefore}, nil
}

func failing(attempt contract.FailedAttempt) answer {
	return func(contract.SyncInput) (contract.SyncResult, error) {
		return contract.SyncResult{}, temporal.NewApplicationErrorWithOptions("upstream says no", contract.ErrorFailed,
			temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{attempt}})
	}
}

func fresh() contract.AccountSyncInput {
	return contract.AccountSyncInput{Account: "alice", Settings: settings}
}

func TestOneCallCoversAllThatSettled(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	r.signal(0, change(1, at(0)), change(2, at(4)), change(3, at(10)))
	result := r.completed(t, fresh())

	require.Len(t, r.seen, 1)
	require.Equal(t, at(30), r.seen[0].NotBefore, "first pending change + D")
	require.Equal(t, []int64{1, 2, 3}, offsets(result.Covered))
}

func TestLateJoinerGetsItsOwnCall(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	r.signal(0, change(1, at(0)), change(2, at(10.5)))
	kind, next, wait := r.continued(t, fresh())

	require.Equal(t, contract.AccountSync, kind)
	require.Equal(t, []int64{1}, offsets(next.Covered))
	require.Equal(t, []int64{2}, offsets(next.Pending), "its change had not settled: 10.5 s + 20 s > 30 s")
	require.Equal(t, at(40.5), at(30).Add(wait), "due by its own change time")
	require.Nil(t, next.Failure)
}

// The account works again, so its failures are forgotten, also where the run goes on.
func TestSuccessEndsFailureThoughChangesAreLeft(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0)), change(2, at(10.5))}
	in.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
	kind, next, _ := r.continued(t, in)
	require.Equal(t, contract.AccountSync, kind)
	require.Nil(t, next.Failure)
	require.Equal(t, []int64{2}, offsets(next.Pending))
}

// A follow-up that is overdue already is called at once.
func TestOverdueFollowUpStartsAtOnce(t *testing.T) {
	r := newRun(t, at(30), nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(50*time.Second).Return(
		contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(30)}, nil)
	r.signal(0, change(1, at(0)), change(2, at(15)))
	_, next, wait := r.continued(t, fresh())
	require.Equal(t, []int64{2}, offsets(next.Pending))
	require.Zero(t, wait, "due at 45 s, and it is 80 s")
}

func TestSignalDuringTheCallIsNotLost(t *testing.T) {
	r := newRun(t, at(30), nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(2*time.Second).Return(
		contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(30)}, nil)
	r.signal(0, change(1, at(0)))
	r.signal(time.Second, change(2, at(31)), change(3, at(9)))
	_, next, _ := r.continued(t, fresh())

	require.ElementsMatch(t, []int64{1, 3}, offsets(next.Covered), "3 had settled before the call, though it was told late")
	require.Equal(t, []int64{2}, offsets(next.Pending))
}

func TestRunTwoBeginsWhereRunOneEnded(t *testing.T) {
	first := newRun(t, at(30), calledAt)
	first.signal(0, change(1, at(0)), change(2, at(15)))
	_, next, wait := first.continued(t, fresh())

	second := newRun(t, at(30).Add(wait), calledAt)
	result := second.completed(t, next)
	require.Equal(t, next.Pending, second.seen[0].Pending)
	require.Equal(t, at(45), second.seen[0].NotBefore)
	require.Equal(t, []int64{2}, offsets(result.Covered))
}

// The SDK drops what it cannot decode. A newer bridge's signal must rather fail the
// workflow task, which then waits for a newer worker: a parked run that takes it is
// as good as a commit.
func TestSignalThatCannotBeDecodedIsNotDropped(t *testing.T) {
	for signal, payload := range map[string]any{
		contract.SignalChanges: map[string]any{"ranges": []any{map[string]any{"version": "uuid:0193"}}},
		contract.SignalDiscard: map[string]any{"ranges": "all"},
		contract.SignalReplay:  map[string]any{"since": "yesterday"},
	} {
		r := newRun(t, at(30), calledAt)
		r.signal(0, change(1, at(0)))
		r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(signal, payload) }, 0)
		r.env.ExecuteWorkflow(contract.AccountSync, fresh())
		require.ErrorContains(t, r.env.GetWorkflowError(), `signal "`+signal+`" cannot be decoded by this build`)
		require.Empty(t, r.seen)
	}
}

func TestRedeliveriesAreIgnored(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	r.signal(0, change(1, at(0)), change(2, at(1)))
	r.signal(0, change(2, at(25)), change(1, at(25)))
	result := r.completed(t, fresh())
	require.Equal(t, 2, contract.Count(result.Covered))
}

func TestRedeliveredChangeIsCoveredByTheRow(t *testing.T) {
	r := newRun(t, at(30), func(in contract.SyncInput) (contract.SyncResult, error) {
		return contract.SyncResult{
			Outcome: contract.OutcomeSkipped, CalledAt: at(5),
			Through: []contract.Through{{Source: in.Pending[0].Source, Position: contract.Position{Offset: 7}}},
		}, nil
	})
	r.signal(0, change(7, at(0)))
	require.Equal(t, []int64{7}, offsets(r.completed(t, fresh()).Covered))
}

func TestFencedCoversNothing(t *testing.T) {
	r := newRun(t, at(30), func(contract.SyncInput) (contract.SyncResult, error) {
		return contract.SyncResult{Outcome: contract.OutcomeFenced, CalledAt: at(60)}, nil
	})
	r.signal(0, change(1, at(0)))
	_, next, wait := r.continued(t, fresh())
	require.Empty(t, next.Covered)
	require.Equal(t, []int64{1}, offsets(next.Pending))
	require.Zero(t, wait)
}

func TestNewestSettingsWin(t *testing.T) {
	r := newRun(t, at(30), calledAt)
	slower := settings
	slower.Delay = contract.Duration(50 * time.Second)
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: []contract.Range{change(1, at(0))}, Settings: slower})
	}, 0)
	r.completed(t, fresh())
	require.Equal(t, at(50), r.seen[0].NotBefore)
	require.Equal(t, slower, r.seen[0].Settings)
}

func TestFailuresAreCountedAndParked(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	start := at(30)
	var kinds []string
	for i := range 4 {
		r := newRun(t, start, failing(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "500", At: start, Charged: i > 0}))
		kind, next, wait := r.continued(t, in)
		if i > 0 {
			require.Equal(t, in.Failure.Last, r.seen[0].LastFailure, "Sync is told when the account failed before")
		}
		require.Equal(t, []int64{1}, offsets(next.Pending))
		require.Empty(t, next.Covered)
		require.Positive(t, wait)
		kinds, in, start = append(kinds, kind), next, start.Add(wait)
	}
	require.Equal(t, []string{contract.AccountSync, contract.AccountSync, contract.ParkedAccountSync, contract.ParkedAccountSync}, kinds)
	require.Equal(t, 4, in.Failure.Count)
	require.Equal(t, at(30), in.Failure.Since)

	recovered := newRun(t, start, calledAt)
	require.Equal(t, []int64{1}, offsets(recovered.completed(t, in).Covered))
}

func TestOutageParksNobody(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	for range 50 {
		r := newRun(t, at(30), failing(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "connection refused", At: at(30)}))
		kind, next, wait := r.continued(t, in)
		require.Equal(t, contract.AccountSync, kind)
		require.LessOrEqual(t, wait, contract.MaxBackoff)
		in = next
	}
	require.Equal(t, 1, in.Failure.Count)
}

func TestRefusalIsBelievedTheSecondTime(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	refused := contract.FailedAttempt{Class: contract.ClassRefused, Reason: "400", At: at(30)}
	kind, next, _ := newRun(t, at(30), failing(refused)).continued(t, in)
	require.Equal(t, contract.AccountSync, kind)

	refused.Charged = true
	kind, next, _ = newRun(t, at(30), failing(refused)).continued(t, next)
	require.Equal(t, contract.ParkedAccountSync, kind)
	require.Equal(t, 2, next.Failure.Count)
}

func TestRefusalAfterAnotherFailureIsTheFirst(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	_, next, _ := newRun(t, at(30), failing(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "500", At: at(30)})).continued(t, in)
	kind, _, _ := newRun(t, at(31), failing(contract.FailedAttempt{Class: contract.ClassRefused, Reason: "400", At: at(31), Charged: true})).continued(t, next)
	require.Equal(t, contract.AccountSync, kind)
}

func TestDeniedIsNoRefusal(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	denied := contract.FailedAttempt{Class: contract.ClassDenied, Reason: "401", At: at(30)}
	_, next, _ := newRun(t, at(30), failing(denied)).continued(t, in)
	denied.Charged = true
	kind, _, _ := newRun(t, at(30), failing(denied)).continued(t, next)
	require.Equal(t, contract.AccountSync, kind, "one bad replica of upstream must not park a tenth of all accounts")
}

// TestEvidenceAccumulates: what others achieved counts since the failure that was
// counted last, however many attempts lie between.
func TestEvidenceAccumulates(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	for i := range 3 {
		start := at(float64(30 * (i + 1)))
		r := newRun(t, start, failing(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "500", At: start, Charged: i == 1}))
		_, in, _ = r.continued(t, in)
	}
	r := newRun(t, at(200), calledAt)
	r.completed(t, in)
	require.Equal(t, at(60), r.seen[0].LastFailure)
}

func TestRetryAfterIsHonoured(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	_, _, wait := newRun(t, at(30), failing(contract.FailedAttempt{
		Class: contract.ClassThrottled, At: at(30), RetryAfter: contract.Duration(90 * time.Second),
	})).continued(t, in)
	require.Equal(t, 90*time.Second, wait)
	_, _, wait = newRun(t, at(30), failing(contract.FailedAttempt{
		Class: contract.ClassThrottled, At: at(30), RetryAfter: contract.Duration(24 * time.Hour),
	})).continued(t, in)
	require.Equal(t, 10*time.Minute, wait, "but no longer than a parked account waits")
}

// TestLostWorkersAreNobodysFault, up to a point: a crash loop parks nobody, but
// an account that kills every worker it meets ends parked.
func TestLostWorkersAreNobodysFault(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	for i := range 10 * settings.ParkAfter {
		kind, next, _ := newRun(t, at(30), func(contract.SyncInput) (contract.SyncResult, error) {
			return contract.SyncResult{}, temporal.NewHeartbeatTimeoutError()
		}).continued(t, in)
		require.Equal(t, contract.ClassLease, next.Failure.Class)
		require.Equal(t, 1, next.Failure.Count)
		require.Equal(t, i == 10*settings.ParkAfter-1, kind == contract.ParkedAccountSync)
		in = next
	}
}

// TestAPanicIsNobodysFault: one that Sync did not catch is a fault of the build and
// meets everybody. Its text, which may hold anything, goes nowhere.
func TestAPanicIsNobodysFault(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	for i := range 2 * settings.ParkAfter {
		tried := 0
		r := newRun(t, at(float64(100+i)), nil)
		r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).Return(
			func(context.Context, contract.SyncInput) (contract.SyncResult, error) {
				tried++
				panic("secret payload")
			})
		kind, next, _ := r.continued(t, in)
		require.Equal(t, 1, tried, "the workflow counts attempts, so the server must not repeat them")
		require.Equal(t, contract.AccountSync, kind)
		require.Equal(t, "attempt ended without a verdict", next.Failure.Reason)
		require.Equal(t, i+1, next.Failure.Lost)
		in = next
	}
}

func TestParkedAccountTakesChangesAndStaysSmall(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	in.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
	r := newRun(t, at(4000), nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).Return(
		failing(contract.FailedAttempt{Class: contract.ClassTransient, At: at(4000), Charged: true})(contract.SyncInput{}))
	for i := range int64(200) {
		r.signal(0, change(2+i, at(float64(10*i))))
	}
	kind, next, _ := r.continued(t, in)
	require.Equal(t, contract.ParkedAccountSync, kind)
	require.Equal(t, 201, contract.Count(next.Pending))
	require.Len(t, next.Pending, 1, "everything will have settled by the next try")
}

// A call that is overdue, after an outage or with a parked account, covers all that
// has settled by now: its input needs one range, whatever the changes' times.
func TestTheInputOfALateCallIsSmall(t *testing.T) {
	for _, delay := range []time.Duration{20 * time.Second, 30 * time.Second} {
		in := fresh()
		in.Settings.Delay = contract.Duration(delay)
		in.Pending = []contract.Range{change(0, at(0))}
		in.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
		var late []contract.Range
		for n := range 300 {
			late = append(late, change(int64(n+1), at(100+float64(n)*2)))
		}
		r := newRun(t, at(4000), func(contract.SyncInput) (contract.SyncResult, error) {
			return contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(4000)}, nil
		})
		r.env.RegisterDelayedCallback(func() {
			r.env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: late, Settings: in.Settings})
		}, 0)
		r.completed(t, in)
		require.Len(t, r.seen[0].Pending, 1, "settle delay %s", delay)
		require.Equal(t, at(0).Add(delay), r.seen[0].NotBefore)
	}
}

// As many signals as a run can take pile up while a parked account's attempt is
// handed back again and again. They are drained in one workflow task, which the
// SDK's deadlock detector gives a second (more here, for the race detector), and
// what they covered fits into the event that closes the run.
func TestTenThousandSignalsAreDrainedAtOnce(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(0, at(0))}
	in.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
	r := newRun(t, at(20000), nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(10*time.Second).Return(
		contract.SyncResult{Outcome: contract.OutcomeWritten, CalledAt: at(20000)}, nil)
	r.env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: 5 * time.Second})
	const batch = 500
	for first := int64(1); first <= 10_000; first += batch {
		r.env.RegisterDelayedCallback(func() {
			for i := first; i < first+batch; i++ {
				r.env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: []contract.Range{change(i, at(4000+float64(i)))}, Settings: settings})
			}
		}, time.Second+time.Duration(first/batch)*time.Millisecond)
	}
	result := r.completed(t, in)
	require.Len(t, result.Covered, 1)
	require.Equal(t, 10_001, contract.Count(result.Covered))
}

// Somebody retried a parked account that had just recovered, which started a run
// with nothing in its input, and a replay joined it.
func TestARunWithoutSettingsTakesTheDefaults(t *testing.T) {
	r := newRun(t, at(0), calledAt)
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(contract.SignalRetry, nil) }, 0)
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalReplay, contract.ReplayRequest{ID: "r1"})
	}, 0)
	require.Equal(t, []string{"r1"}, r.completed(t, contract.AccountSyncInput{Account: "alice"}).Replayed.IDs)
	require.Equal(t, contract.DefaultSettings(), r.seen[0].Settings)

	r = newRun(t, at(30), calledAt)
	r.env.RegisterDelayedCallback(func() {
		r.env.SignalWorkflow(contract.SignalChanges, contract.Changes{Ranges: []contract.Range{change(1, at(0))}})
	}, 0)
	r.completed(t, contract.AccountSyncInput{Account: "alice"})
	require.Equal(t, at(30), r.seen[0].NotBefore)
}

func TestRetryOfAnIdleAccountCompletes(t *testing.T) {
	r := newRun(t, at(0), calledAt)
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(contract.SignalRetry, nil) }, 0)
	require.Empty(t, r.completed(t, fresh()).Covered)
	require.Empty(t, r.seen)
}

func TestCancelledRunEndsCancelled(t *testing.T) {
	r := newRun(t, at(30), nil)
	r.env.OnActivity(contract.Sync, mock.Anything, mock.Anything).After(time.Hour).Return(contract.SyncResult{}, nil)
	r.signal(0, change(1, at(0)))
	r.env.RegisterDelayedCallback(r.env.CancelWorkflow, time.Second)
	r.env.ExecuteWorkflow(contract.AccountSync, fresh())
	require.True(t, temporal.IsCanceledError(r.env.GetWorkflowError()), "got %v", r.env.GetWorkflowError())
}
