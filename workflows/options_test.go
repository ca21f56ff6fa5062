package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// watcher remembers the options under which a run's activities are scheduled.
type watcher struct {
	interceptor.WorkerInterceptorBase
	options map[string]workflow.ActivityOptions
}

func (w *watcher) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &watcherInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, w}
}

type watcherInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	watcher *watcher
}

func (i *watcherInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&watcherOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, i.watcher})
}

type watcherOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	watcher *watcher
}

func (o *watcherOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o.watcher.options[name] = workflow.GetActivityOptions(ctx)
	return o.Next.ExecuteActivity(ctx, name, args...)
}

// scheduled runs in and returns the options of its Sync.
func scheduled(t *testing.T, in contract.AccountSyncInput) workflow.ActivityOptions {
	w := &watcher{options: map[string]workflow.ActivityOptions{}}
	r := newRun(t, at(30), calledAt)
	r.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{w}})
	r.completed(t, in)
	return w.options[contract.Sync]
}

// TestAnAttemptHasItsLeases: it ends by itself, silence ends it sooner, and every
// end but a hand-back comes to the workflow, which counts.
func TestAnAttemptHasItsLeases(t *testing.T) {
	in := fresh()
	in.Pending = []contract.Range{change(1, at(0))}
	options := scheduled(t, in)
	require.Equal(t, 30*time.Second, options.StartToCloseTimeout)
	require.Equal(t, 10*time.Second, options.HeartbeatTimeout)
	require.Zero(t, options.ScheduleToCloseTimeout, "waiting in the queue is no failure")
	require.Zero(t, options.RetryPolicy.MaximumAttempts, "handed back as often as it takes")
	require.ElementsMatch(t, []string{contract.ErrorFailed, "PanicError", "TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat"},
		options.RetryPolicy.NonRetryableErrorTypes)
}

// Live changes come first, then replays, then accounts that have been set aside,
// with a replay or without.
func TestPriorities(t *testing.T) {
	live, replay, parked := fresh(), fresh(), fresh()
	live.Pending = []contract.Range{change(1, at(0))}
	replay.Replays = []contract.ReplayRequest{{ID: "r1"}}
	parked.Failure = &contract.Failure{Count: 3, Tries: 3, Parked: true, Since: at(0), Last: at(30)}
	priority := func(in contract.AccountSyncInput) temporal.Priority { return scheduled(t, in).Priority }
	require.Zero(t, priority(live), "the server's default")
	require.Equal(t, 4, priority(replay).PriorityKey)
	parked.Pending = live.Pending
	require.Equal(t, 5, priority(parked).PriorityKey)
	parked.Pending, parked.Replays = nil, replay.Replays
	require.Equal(t, 5, priority(parked).PriorityKey)
	live.Replays = replay.Replays
	require.Zero(t, priority(live), "it joins the changes' call")
}
