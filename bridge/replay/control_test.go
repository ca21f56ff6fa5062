package replay

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// answer is what a query returned.
type answer struct{ value any }

func (a answer) HasValue() bool { return true }

func (a answer) Get(to any) error {
	text, err := json.Marshal(a.value)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func control(temporal client.Client) *Control {
	return &Control{Client: temporal, Converter: converter.GetDefaultDataConverter(), Namespace: "default", Pipeline: "crm", TaskQueue: "crm"}
}

func described(status enumspb.WorkflowExecutionStatus, pending ...*workflowpb.PendingActivityInfo) *workflowservice.DescribeWorkflowExecutionResponse {
	info := &workflowpb.WorkflowExecutionInfo{Status: status, StartTime: timestamppb.New(base)}
	if status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		info.CloseTime = timestamppb.New(base.Add(time.Minute))
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info, PendingActivities: pending}
}

// TestBudget: what is free is the limit less what workers have use for.
func TestBudget(t *testing.T) {
	later := base.Add(time.Minute)
	for _, test := range []struct {
		status contract.BudgetStatus
		free   int
		why    string
	}{
		{contract.BudgetStatus{Budget: 15, Limit: 15, Workers: []contract.BudgetWorker{{Demand: 3, Granted: 15}, {Demand: 2}}}, 10, ""},
		{contract.BudgetStatus{Budget: 15, Limit: 7, Workers: []contract.BudgetWorker{{Demand: 3}}}, 4, ""},
		{contract.BudgetStatus{Budget: 15, Limit: 15, Workers: []contract.BudgetWorker{{Demand: 30}}}, 0, "have use for all of the budget"},
		{contract.BudgetStatus{Budget: 15, WaitsUntil: later}, 0, "just begun"},
		{contract.BudgetStatus{Budget: 15, PausedUntil: later}, 0, "wants no calls"},
		{contract.BudgetStatus{Budget: 15, Breaker: contract.Breaker{Open: true, Cause: "answered 500"}}, 0, "upstream is out: answered 500"},
		{contract.BudgetStatus{}, 0, "the budget is 0"},
	} {
		temporal := &mocks.Client{}
		temporal.On("QueryWorkflow", mock.Anything, "crm/budget", "", contract.QueryBudget).Return(answer{test.status}, nil)
		budget, err := control(temporal).Budget(t.Context())
		require.NoError(t, err)
		require.Equal(t, test.free, budget.Free(), test.status)
		if test.free == 0 {
			require.Contains(t, budget.WhyNone(), test.why)
		}
	}
	for want, err := range map[string]error{
		"no worker of the pipeline has run": serviceerror.NewNotFound("workflow not found"),
		"a worker answers":                  context.DeadlineExceeded,
	} {
		temporal := &mocks.Client{}
		temporal.On("QueryWorkflow", mock.Anything, "crm/budget", "", contract.QueryBudget).Return(nil, err)
		_, err := control(temporal).Budget(t.Context())
		require.ErrorContains(t, err, want)
	}
}

// TestShow: what the slice under way told last is newer than what the workflow
// knows, and what holds it up is said.
func TestShow(t *testing.T) {
	state := contract.ReplayState{ID: "r1", Began: base.Add(-time.Hour).UTC(), Accounts: 9, Progress: contract.ReplayProgress{Next: cursor(2)}}
	beat, err := converter.GetDefaultDataConverter().ToPayloads(contract.ReplayProgress{Next: cursor(5)})
	require.NoError(t, err)
	full, err := converter.GetDefaultDataConverter().ToPayloads(contract.ReplayProgress{Next: cursor(5), Ahead: []contract.ReplayCursor{cursor(7)}, WaitsFor: "alice"})
	require.NoError(t, err)
	for _, test := range []struct {
		name    string
		pending []*workflowpb.PendingActivityInfo
		next    int64
		waiting string
	}{
		{"between slices", nil, 2, ""},
		{"in a slice", []*workflowpb.PendingActivityInfo{{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, HeartbeatDetails: beat}}, 5, ""},
		{"held up by an account", []*workflowpb.PendingActivityInfo{{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, HeartbeatDetails: full}}, 5,
			`account "alice" is still under way, and with 1 done that come after it none is begun (worker audit alice)`},
		{"its bridge is gone", []*workflowpb.PendingActivityInfo{{State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, HeartbeatDetails: full}}, 5, "no bridge has taken it"},
		{"no bridge", []*workflowpb.PendingActivityInfo{{State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}}, 2, "no bridge has taken it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			temporal := &mocks.Client{}
			temporal.On("DescribeWorkflowExecution", mock.Anything, "crm/replay/r1", "").Return(described(enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, test.pending...), nil)
			temporal.On("QueryWorkflow", mock.Anything, "crm/replay/r1", mock.Anything, contract.QueryReplay).Return(answer{state}, nil)
			v, err := control(temporal).Show(t.Context(), "r1")
			require.NoError(t, err)
			require.Equal(t, test.next, v.Progress.Next.Offset)
			require.Equal(t, test.waiting, v.Waiting)
			require.Equal(t, "running", v.Status)
			require.True(t, v.Open())
			require.Equal(t, base.Add(-time.Hour).UTC(), v.StartedAt, "the replay's own, not its latest run's")
		})
	}
}

// TestControlOfWhatIsNotThere: a mistyped ID and a replay that is over are told
// apart, and neither is signalled.
func TestControlOfWhatIsNotThere(t *testing.T) {
	for _, test := range []struct {
		described *workflowservice.DescribeWorkflowExecutionResponse
		err, want error
	}{
		{nil, serviceerror.NewNotFound("workflow not found"), ErrNotFound},
		{described(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED), nil, ErrOver},
	} {
		temporal := &mocks.Client{}
		temporal.On("DescribeWorkflowExecution", mock.Anything, "crm/replay/r1", "").Return(test.described, test.err)
		for _, do := range []func(*Control, context.Context, string) error{(*Control).Pause, (*Control).Resume, (*Control).Cancel} {
			require.ErrorIs(t, do(control(temporal), t.Context(), "r1"), test.want)
		}
	}
	temporal := &mocks.Client{}
	temporal.On("DescribeWorkflowExecution", mock.Anything, "crm/replay/r1", "").Return(nil, errors.New("out"))
	require.ErrorContains(t, control(temporal).Pause(t.Context(), "r1"), "describe replay r1: out")
}
