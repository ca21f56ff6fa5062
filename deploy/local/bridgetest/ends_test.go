package bridgetest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestEveryWayARunCanEnd has a run cancelled, terminated, reset, timed out and
// deleted while its change waits in it. Each change is signalled again, read
// from upstream once, and committed.
func TestEveryWayARunCanEnd(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, "ends")
	ctx := t.Context()
	service := world.temporal.WorkflowService()
	id := func(account string) string { return contract.AccountWorkflowID(p.Name, account) }

	// A run that times out: nobody works on its queue, and the bridge takes it
	// for the account's.
	_, err := world.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id("timed-out"), TaskQueue: "nobody", WorkflowRunTimeout: 6 * time.Second,
	}, contract.AccountSync, contract.AccountSyncInput{Account: "timed-out"})
	must(t, err)

	// What breaks each, and how the bridge calls it.
	breaks := map[string]struct {
		by    func(account, runID string) error
		named []string
	}{
		"cancelled": {func(account, runID string) error {
			return world.temporal.CancelWorkflow(ctx, id(account), runID)
		}, []string{"Canceled"}},
		"terminated": {func(account, runID string) error {
			return world.temporal.TerminateWorkflow(ctx, id(account), runID, "test")
		}, []string{"Terminated"}},
		"reset": {func(account, runID string) error { return reset(ctx, id(account), runID) }, []string{"Terminated"}},
		"deleted": {func(account, runID string) error {
			_, err := service.DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: world.Temporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id(account), RunId: runID},
			})
			return err
		}, []string{"Terminated", "gone"}},
		"timed-out": {func(string, string) error { return nil }, []string{"TimedOut"}},
	}
	for account := range breaks {
		p.change(account)
	}
	for account, broken := range breaks {
		var runID string
		until(t, account+" has a run", func() bool {
			description, err := world.temporal.DescribeWorkflowExecution(ctx, id(account), "")
			runID = description.GetWorkflowExecutionInfo().GetExecution().GetRunId()
			return err == nil && (account != "timed-out" || description.GetWorkflowExecutionInfo().GetHistoryLength() > 1)
		})
		must(t, broken.by(account, runID))
	}
	p.drained()
	for account, broken := range breaks {
		if calls := len(p.upstream.CallsOf(account)); calls != 1 {
			t.Errorf("%s: %d calls, want 1", account, calls)
		}
		named := false
		for _, end := range broken.named {
			named = named || p.said("run ended without a result", "account="+account, "end="+end)
		}
		if !named {
			t.Errorf("%s: the bridge did not see its run end in one of these ways: %v", account, broken.named)
		}
	}
}

// TestRunGoneWithRetention deletes a run that has completed before the bridge
// could look: its change is signalled again, and the row check answers without
// a call.
func TestRunGoneWithRetention(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, "gone", "SETTLE_DELAY=3s")
	ctx := t.Context()
	id := contract.AccountWorkflowID(p.Name, "alice")
	p.change("alice")
	var runID string
	until(t, "alice has a run", func() bool {
		description, err := world.temporal.DescribeWorkflowExecution(ctx, id, "")
		runID = description.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		return err == nil
	})
	must(t, p.bridge.Signal(syscall.SIGSTOP))
	until(t, "it has completed", func() bool {
		description, err := world.temporal.DescribeWorkflowExecution(ctx, id, runID)
		must(t, err)
		return description.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	})
	_, err := world.temporal.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: world.Temporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runID},
	})
	must(t, err)
	until(t, "it is gone", func() bool {
		_, err := world.temporal.DescribeWorkflowExecution(ctx, id, runID)
		notFound := (*serviceerror.NotFound)(nil)
		return errors.As(err, &notFound)
	})
	must(t, p.bridge.Signal(syscall.SIGCONT))
	p.drained()
	if calls := len(p.upstream.CallsOf("alice")); calls != 1 {
		t.Errorf("%d calls, want 1: the row check makes the second run cheap", calls)
	}
	if !p.said("run ended without a result", "account=alice", "end=gone") {
		t.Error("the bridge did not find its run gone")
	}
}

// reset resets a run to its first workflow task, as an operator does. For there
// to be one, the run is woken before its time: its activity hands itself back.
func reset(ctx context.Context, workflowID, runID string) error {
	_, err := world.temporal.SignalWithStartWorkflow(ctx, workflowID, contract.SignalRetry, nil,
		client.StartWorkflowOptions{TaskQueue: "nobody"}, contract.AccountSync, contract.AccountSyncInput{})
	if err != nil {
		return err
	}
	history := world.temporal.GetWorkflowHistory(ctx, workflowID, runID, true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return err
		}
		if event.GetEventType() != enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			continue
		}
		_, err = world.temporal.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
			Namespace:                 world.Temporal.Namespace,
			WorkflowExecution:         &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
			Reason:                    "test",
			WorkflowTaskFinishEventId: event.GetEventId(),
			RequestId:                 workflowID,
		})
		return err
	}
	return errors.New("no workflow task was completed")
}
