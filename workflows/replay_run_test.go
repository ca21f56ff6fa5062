package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var replayInput = contract.ReplayInput{ID: "r1", Operator: "ada", Reason: "drill", What: "3 accounts", InFlight: 2, Accounts: []string{"a", "b", "c"}}

// replayRun is a replay in the test environment whose slices are given.
type replayRun struct {
	env *testsuite.TestWorkflowEnvironment

	mu   sync.Mutex // a cancelled workflow does not wait for its activity
	seen []contract.ReplayInput
}

// inputs returns what the executions of the activity were given so far.
func (r *replayRun) inputs() []contract.ReplayInput {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// slice is what one execution of the activity does.
type slice func(ctx context.Context, in contract.ReplayInput) (contract.ReplayProgress, error)

func newReplayRun(steps ...slice) *replayRun {
	r := &replayRun{env: new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()}
	workflows.Register(r.env)
	r.env.RegisterActivityWithOptions(func(context.Context, contract.ReplayInput) (contract.ReplayProgress, error) { panic("mocked") },
		activity.RegisterOptions{Name: contract.ReplayAccounts})
	r.env.OnActivity(contract.ReplayAccounts, mock.Anything, mock.Anything).Return(
		func(ctx context.Context, in contract.ReplayInput) (contract.ReplayProgress, error) {
			r.mu.Lock()
			r.seen = append(r.seen, in)
			step := steps[min(len(r.seen), len(steps))-1]
			r.mu.Unlock()
			return step(ctx, in)
		})
	return r
}

func (r *replayRun) signal(after time.Duration, name string) {
	r.env.RegisterDelayedCallback(func() { r.env.SignalWorkflow(name, nil) }, after)
}

func (r *replayRun) state(t *testing.T) contract.ReplayState {
	t.Helper()
	value, err := r.env.QueryWorkflow(contract.QueryReplay)
	require.NoError(t, err)
	var state contract.ReplayState
	require.NoError(t, value.Get(&state))
	return state
}

// upTo is a slice that ends at a place.
func upTo(n int64, complete bool) slice {
	return func(context.Context, contract.ReplayInput) (contract.ReplayProgress, error) {
		return contract.ReplayProgress{Next: contract.ReplayCursor{Offset: n}, Complete: complete, Counts: contract.ReplayCounts{Synced: int(n)}}, nil
	}
}

// TestReplayGoesOnWhereASliceEnded until it is complete, and reports.
func TestReplayGoesOnWhereASliceEnded(t *testing.T) {
	r := newReplayRun(upTo(1, false), upTo(2, false), upTo(3, true))
	r.env.SetStartTime(at(7))
	r.env.ExecuteWorkflow(contract.Replay, replayInput)
	require.NoError(t, r.env.GetWorkflowError())
	var state contract.ReplayState
	require.NoError(t, r.env.GetWorkflowResult(&state))
	require.Equal(t, contract.ReplayState{ID: "r1", Operator: "ada", Reason: "drill", What: "3 accounts", Began: at(7).UTC(), Accounts: 3,
		Progress: contract.ReplayProgress{Next: contract.ReplayCursor{Offset: 3}, Complete: true, Counts: contract.ReplayCounts{Synced: 3}}}, state)
	require.Len(t, r.inputs(), 3)
	require.Zero(t, r.inputs()[0].Progress)
	require.False(t, r.inputs()[0].Again)
	require.True(t, r.inputs()[1].Again)
	require.EqualValues(t, 1, r.inputs()[1].Progress.Next.Offset)
	require.EqualValues(t, 2, r.inputs()[2].Progress.Next.Offset)
}

// hanging is a slice that ends when it is cancelled. The test environment tells
// the workflow at once, as a server does whose activity no bridge has: the
// slice's own progress is lost. (That it comes back from one that a bridge has is
// tested end to end.)
func (r *replayRun) hanging() slice {
	released := make(chan struct{})
	r.env.SetOnActivityCanceledListener(func(*activity.Info) { close(released) })
	return func(context.Context, contract.ReplayInput) (contract.ReplayProgress, error) {
		<-released
		return contract.ReplayProgress{}, nil
	}
}

// TestReplayPauses: a pause ends the slice; nothing runs until it is resumed, and
// then from where the last slice ended.
func TestReplayPauses(t *testing.T) {
	var hanging slice
	r := newReplayRun(upTo(2, false), func(ctx context.Context, in contract.ReplayInput) (contract.ReplayProgress, error) {
		return hanging(ctx, in)
	}, upTo(3, true))
	hanging = r.hanging()
	r.signal(time.Second, contract.SignalPause)
	r.env.RegisterDelayedCallback(func() {
		require.True(t, r.state(t).Paused)
		require.EqualValues(t, 2, r.state(t).Progress.Next.Offset)
		require.Len(t, r.inputs(), 2)
		r.env.SignalWorkflow(contract.SignalResume, nil)
	}, time.Hour)
	r.env.ExecuteWorkflow(contract.Replay, replayInput)
	require.NoError(t, r.env.GetWorkflowError())
	require.Len(t, r.inputs(), 3)
	require.EqualValues(t, 2, r.inputs()[2].Progress.Next.Offset)
	require.False(t, r.inputs()[2].Paused)
}

// unheard has the first slice fail, as soon as it is to be cancelled, with err: a
// server repeats no activity that is to be cancelled.
type unheard struct {
	interceptor.InterceptorBase
	err error
}

func (u *unheard) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &unheardIn{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, err: u.err}
}

type unheardIn struct {
	interceptor.WorkflowInboundInterceptorBase
	err error
}

func (u *unheardIn) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return u.Next.Init(&unheardOut{WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: next}, err: u.err})
}

type unheardOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	err error
}

func (u *unheardOut) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	if u.err == nil {
		return u.Next.ExecuteActivity(ctx, name, args...)
	}
	err := u.err
	u.err = nil
	future, settable := workflow.NewFuture(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		settable.SetError(fmt.Errorf("activity error: %w", err))
	})
	return future
}

// TestPauseThatNobodyHeard of a replay whose bridge dies, or reports an error,
// before it has heard of it: the replay pauses all the same, and keeps what the
// last heartbeat told.
func TestPauseThatNobodyHeard(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		next int64
	}{
		"dead":                      {temporal.NewHeartbeatTimeoutError(contract.ReplayProgress{Next: contract.ReplayCursor{Offset: 2}}), 2},
		"dead before any heartbeat": {temporal.NewHeartbeatTimeoutError(), 0},
		"an error":                  {temporal.NewApplicationError("kafka", "kafka"), 0},
	} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cancelled %t", name, cancelled), func(t *testing.T) {
				r := newReplayRun(upTo(3, true))
				r.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&unheard{err: test.err}}})
				r.env.RegisterDelayedCallback(func() {
					if cancelled {
						r.env.CancelWorkflow()
						return
					}
					r.env.SignalWorkflow(contract.SignalPause, nil)
				}, time.Second)
				r.env.RegisterDelayedCallback(func() {
					require.True(t, r.state(t).Paused)
					require.Empty(t, r.inputs())
					r.env.SignalWorkflow(contract.SignalResume, nil)
				}, time.Hour)
				r.env.ExecuteWorkflow(contract.Replay, replayInput)
				if cancelled {
					var canceled *temporal.CanceledError
					require.True(t, errors.As(r.env.GetWorkflowError(), &canceled), "%v", r.env.GetWorkflowError())
					var state contract.ReplayState
					require.NoError(t, canceled.Details(&state))
					require.Equal(t, test.next, state.Progress.Next.Offset)
					return
				}
				require.NoError(t, r.env.GetWorkflowError())
				require.Len(t, r.inputs(), 1)
				require.Equal(t, test.next, r.inputs()[0].Progress.Next.Offset)
				require.True(t, r.inputs()[0].Again, "accounts may have been asked")
			})
		}
	}
}

// TestReplayIsCancelled while it works and while it is paused.
func TestReplayIsCancelled(t *testing.T) {
	for _, paused := range []bool{false, true} {
		var hanging slice
		r := newReplayRun(upTo(1, false), func(ctx context.Context, in contract.ReplayInput) (contract.ReplayProgress, error) {
			return hanging(ctx, in)
		})
		hanging = r.hanging()
		if paused {
			r.signal(time.Second/2, contract.SignalPause)
		}
		r.env.RegisterDelayedCallback(r.env.CancelWorkflow, time.Second)
		r.env.ExecuteWorkflow(contract.Replay, replayInput)
		var canceled *temporal.CanceledError
		require.True(t, errors.As(r.env.GetWorkflowError(), &canceled), "%v", r.env.GetWorkflowError())
		var state contract.ReplayState
		require.NoError(t, canceled.Details(&state))
		require.Equal(t, paused, state.Paused)
		require.EqualValues(t, 1, state.Progress.Next.Offset)
		require.Len(t, r.inputs(), 2)
	}
}

// TestReplayContinuesAsNew with all of its state: run 2's input is run 1's.
func TestReplayContinuesAsNew(t *testing.T) {
	n := int64(0)
	r := newReplayRun(func(context.Context, contract.ReplayInput) (contract.ReplayProgress, error) {
		n++
		return contract.ReplayProgress{Next: contract.ReplayCursor{Offset: n}, Ahead: []contract.ReplayCursor{{Offset: n + 1}}, Counts: contract.ReplayCounts{Synced: int(n), Parked: 1}}, nil
	})
	r.env.SetStartTime(at(7))
	r.env.ExecuteWorkflow(contract.Replay, replayInput)
	var again *workflow.ContinueAsNewError
	require.True(t, errors.As(r.env.GetWorkflowError(), &again), "%v", r.env.GetWorkflowError())
	require.Len(t, r.inputs(), 150)
	want := replayInput
	want.Began, want.Again = at(7).UTC(), true
	require.True(t, at(7).Equal(r.inputs()[0].Began), "accounts are told since when a call counts")
	want.Progress = contract.ReplayProgress{Next: contract.ReplayCursor{Offset: 150}, Ahead: []contract.ReplayCursor{{Offset: 151}}, Counts: contract.ReplayCounts{Synced: 150, Parked: 1}}
	var got contract.ReplayInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &got))
	require.Equal(t, want, got)

	// The next run began later; the replay did not.
	r = newReplayRun(upTo(3, true))
	r.env.SetStartTime(at(86400))
	r.env.ExecuteWorkflow(contract.Replay, got)
	require.NoError(t, r.env.GetWorkflowError())
	require.Equal(t, want.Began, r.inputs()[0].Began)
}
