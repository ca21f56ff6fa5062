package histories

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const recorded = "../../workflows/testdata/histories"

// TestARunOfBudgetThatWasResetIsLeftOut: it ended itself, as no replay does.
// Other types that were reset replay like any other run.
func TestARunOfBudgetThatWasResetIsLeftOut(t *testing.T) {
	run := func(kind string, cause enumspb.WorkflowTaskFailedCause) History {
		events := &historypb.History{Events: []*historypb.HistoryEvent{
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
					WorkflowType: &commonpb.WorkflowType{Name: kind}, TaskQueue: &taskqueuepb.TaskQueue{Name: "q"}, OriginalExecutionRunId: "before",
				}}},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, Attributes: &historypb.HistoryEvent_WorkflowTaskFailedEventAttributes{
				WorkflowTaskFailedEventAttributes: &historypb.WorkflowTaskFailedEventAttributes{ScheduledEventId: 2, StartedEventId: 3, Cause: cause}}},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{
				WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{ScheduledEventId: 5, StartedEventId: 6}}},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW, Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
				WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{
					NewExecutionRunId: "next", WorkflowType: &commonpb.WorkflowType{Name: kind}, WorkflowTaskCompletedEventId: 7,
				}}},
		}}
		for i, event := range events.Events {
			event.EventId = int64(i + 1)
		}
		return History{Type: kind, Events: events}
	}
	report, err := Verify([]History{
		run(contract.Budget, enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW),
		run(contract.Budget, enumspb.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR),
		run(contract.AccountSync, enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW),
	}, converter.GetDefaultDataConverter(), func(registry worker.WorkflowRegistry) {
		workflows.Register(registry)
		workflows.RegisterBudget(registry)
	})
	require.NoError(t, err)
	require.Equal(t, 1, report.LeftOut)
	require.Len(t, report.Failures, 2, "what ends as no workflow of this build does, for another reason")
}

// TestVerifyFindsWhatDoesNotFit among recorded histories: those that are meant
// not to replay, and no others, with the event that does not fit.
func TestVerifyFindsWhatDoesNotFit(t *testing.T) {
	all, err := Load(recorded)
	require.NoError(t, err)
	report, err := Verify(all, converter.GetDefaultDataConverter(), func(registry worker.WorkflowRegistry) {
		workflows.Register(registry)
		workflows.RegisterBudget(registry)
	})
	require.NoError(t, err)
	replayed := 0
	for _, n := range report.Replayed {
		replayed += n
	}
	require.Equal(t, len(all), replayed)
	planted := 0
	for _, h := range all {
		if strings.Contains(h.Name, "/must-fail-") {
			planted++
		}
	}
	require.Positive(t, planted)
	require.Len(t, report.Failures, planted)
	for _, f := range report.Failures {
		require.Contains(t, f.History, "/must-fail-")
		if strings.HasSuffix(f.History, "/must-fail-activity-renamed.json") {
			require.EqualValues(t, 7, f.Event, f.Error)
			require.Equal(t, "ActivityTaskScheduled", f.EventType, f.Error)
		}
		require.Contains(t, f.Error, "TMPRL1100")
	}
}

// TestSaveAndLoad: what is kept replays as what was downloaded.
func TestSaveAndLoad(t *testing.T) {
	one, err := load(filepath.Join(recorded, "2026-11-30-93e4594", "one-call.json"))
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "new")
	require.NoError(t, Save(dir, []History{one}))
	all, err := Load(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, one.Type, all[0].Type)
	require.Len(t, all[0].Events.GetEvents(), len(one.Events.GetEvents()))
	require.False(t, all[0].Open)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "torn.json"), []byte("{"), 0o644))
	_, err = Load(dir)
	require.ErrorContains(t, err, "torn.json")
	_, err = Load(filepath.Join(dir, "elsewhere"))
	require.ErrorContains(t, err, "elsewhere")
}

// TestSampleTakesEveryBuild: a build with few histories is not crowded out by
// the newest, and runs without a decision are no use.
func TestSampleTakesEveryBuild(t *testing.T) {
	temporal := &mocks.Client{}
	builds := []string{"v2", "v2", "v2", "", "v1", "v2", "v1"}
	temporal.On("ListWorkflow", mock.Anything, mock.MatchedBy(func(r *workflowservice.ListWorkflowExecutionsRequest) bool {
		return strings.HasPrefix(r.GetQuery(), "WorkflowType = 'AccountSync' AND ExecutionStatus != 'Running' AND CloseTime >= '2026-11-23T12:00:00Z' AND WorkflowId STARTS_WITH 'crm/'")
	})).Return(func(context.Context, *workflowservice.ListWorkflowExecutionsRequest) *workflowservice.ListWorkflowExecutionsResponse {
		out := &workflowservice.ListWorkflowExecutionsResponse{}
		for _, build := range append(builds, "undecided") {
			out.Executions = append(out.Executions, &workflowpb.WorkflowExecutionInfo{
				Execution: &commonpb.WorkflowExecution{WorkflowId: "crm/account/a", RunId: build}, Status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED,
			})
		}
		return out
	}, nil)
	temporal.On("ListWorkflow", mock.Anything, mock.Anything).Return(&workflowservice.ListWorkflowExecutionsResponse{}, nil)
	temporal.On("GetWorkflowHistory", mock.Anything, "crm/account/a", mock.Anything, false, mock.Anything).Return(
		func(_ context.Context, _, runID string, _ bool, _ enumspb.HistoryEventFilterType) client.HistoryEventIterator {
			return &events{left: history(runID)}
		})
	s := &Sampler{Client: temporal, Namespace: "default", Pipeline: "crm", Types: []string{"AccountSync"}, Each: 2, Since: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
	all, err := s.Sample(t.Context())
	require.NoError(t, err)
	var got []string
	for _, h := range all {
		got = append(got, h.Build)
		require.False(t, h.Open)
	}
	require.Equal(t, []string{"v2", "v2", "", "v1", "v1"}, got)
}

func history(build string) []*historypb.HistoryEvent {
	if build == "undecided" {
		return []*historypb.HistoryEvent{{EventId: 1, EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED}}
	}
	done := &historypb.WorkflowTaskCompletedEventAttributes{}
	if build != "" {
		done.DeploymentVersion = &deploymentpb.WorkerDeploymentVersion{BuildId: build}
	}
	return []*historypb.HistoryEvent{{EventId: 1, EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{WorkflowTaskCompletedEventAttributes: done}}}
}

// events is an iterator over given events.
type events struct{ left []*historypb.HistoryEvent }

func (e *events) HasNext() bool { return len(e.left) > 0 }

func (e *events) Next() (*historypb.HistoryEvent, error) {
	next := e.left[0]
	e.left = e.left[1:]
	return next, nil
}
