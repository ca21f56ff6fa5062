package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Runs asks accounts' runs for a call and learns what became of it.
type Runs struct {
	*run.Client
	Pipeline string
	// Settings go to runs that a replay starts; those that are open have theirs.
	Settings contract.Settings
}

// errAgain says that the run ended without having served the replay.
var errAgain = errors.New("run ended without the call")

// Request delivers the request to the account's open run, or starts one, and
// returns it. A run that waits for changes to settle is not woken: the replay
// joins its call. A parked one is: it may wait for ten minutes.
func (r *Runs) Request(ctx context.Context, account string, request contract.ReplayRequest) (runID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	workflowID := contract.AccountWorkflowID(r.Pipeline, account)
	input, err := r.Converter.ToPayloads(request)
	if err != nil {
		return "", fmt.Errorf("encode signal: %w", err)
	}
	response, err := r.Service.SignalWorkflowExecution(ctx, &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: r.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowID},
		SignalName: contract.SignalReplay, Input: input, Identity: r.Identity, RequestId: request.ID,
	})
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return r.start(ctx, workflowID, account, request, input)
	}
	if err != nil {
		return "", fmt.Errorf("signal %s: %w", workflowID, err)
	}
	runID = response.GetLink().GetWorkflowEvent().GetRunId()
	began, err := r.Start(ctx, workflowID, runID)
	if errors.Is(err, run.ErrGone) {
		return "", errAgain
	}
	if err != nil {
		return "", err
	}
	if began.Input.Parked() {
		return r.start(ctx, workflowID, account, request, input)
	}
	return runID, nil
}

// start signals with start, which wakes a run that waits.
func (r *Runs) start(ctx context.Context, workflowID, account string, request contract.ReplayRequest, signal *commonpb.Payloads) (string, error) {
	input, err := r.Converter.ToPayloads(contract.AccountSyncInput{Account: account, Settings: r.Settings})
	if err != nil {
		return "", fmt.Errorf("encode input: %w", err)
	}
	memo, err := r.Converter.ToPayload(account)
	if err != nil {
		return "", fmt.Errorf("encode memo: %w", err)
	}
	response, err := r.Service.SignalWithStartWorkflowExecution(ctx, &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace: r.Namespace, WorkflowId: workflowID,
		WorkflowType: &commonpb.WorkflowType{Name: contract.AccountSync},
		TaskQueue:    &taskqueuepb.TaskQueue{Name: r.TaskQueue},
		Input:        input, Identity: r.Identity, RequestId: request.ID + "/start",
		WorkflowIdReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		SignalName:            contract.SignalReplay, SignalInput: signal,
		Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoAccount: memo}},
	})
	if err != nil {
		return "", fmt.Errorf("signal-with-start %s: %w", workflowID, err)
	}
	return response.GetRunId(), nil
}

// Follow waits until the run, or one that it continued as, has served the
// replay or was parked with it. It returns errAgain for a run that ended in any
// other way.
func (r *Runs) Follow(ctx context.Context, account, runID, id string) (result, error) {
	workflowID := contract.AccountWorkflowID(r.Pipeline, account)
	for {
		event, err := r.last(ctx, workflowID, runID, true)
		if err != nil {
			return result{}, err
		}
		served, next, err := r.ended(event, id)
		if err != nil {
			return result{}, fmt.Errorf("follow %s/%s: %w", workflowID, runID, err)
		}
		switch {
		case served != nil:
			return resultOf(served), nil
		case next != nil && next.Input.Parked():
			return result{kind: setAside}, nil
		case next != nil:
			runID = next.RunID
		case closed(event):
			return result{}, errAgain
		}
		if err := ctx.Err(); err != nil {
			return result{}, err
		}
	}
}

// Served reports whether the account's latest run, or the one that it continues,
// has served the replay already, and how. Where another run came in between it
// does not know; then the worker finds in the row that the account has been read
// since the replay began.
func (r *Runs) Served(ctx context.Context, account, id string) (result, bool, error) {
	workflowID := contract.AccountWorkflowID(r.Pipeline, account)
	event, err := r.last(ctx, workflowID, "", false)
	if errors.Is(err, errAgain) {
		return result{}, false, nil // there is none
	}
	if err != nil {
		return result{}, false, err
	}
	served, _, err := r.ended(event, id)
	if err != nil {
		return result{}, false, fmt.Errorf("read end of %s: %w", workflowID, err)
	}
	if served != nil {
		return resultOf(served), true, nil
	}
	if closed(event) {
		return result{}, false, nil
	}
	began, err := r.Start(ctx, workflowID, "")
	if errors.Is(err, run.ErrGone) {
		return result{}, false, nil
	}
	if err != nil || !began.Input.Replayed.Serves(id) {
		return result{}, false, err
	}
	return resultOf(began.Input.Replayed), true, nil
}

// ended decodes a closing event: how the replay was served, or the run that goes
// on with it.
func (r *Runs) ended(event *historypb.HistoryEvent, id string) (served *contract.Replayed, next *run.Start, err error) {
	if done := event.GetWorkflowExecutionCompletedEventAttributes(); done != nil {
		var out contract.AccountSyncResult
		if err := r.Converter.FromPayloads(done.GetResult(), &out); err != nil {
			return nil, nil, fmt.Errorf("decode result: %w", err)
		}
		if out.Replayed.Serves(id) {
			return out.Replayed, nil, nil
		}
		return nil, nil, nil
	}
	continued := event.GetWorkflowExecutionContinuedAsNewEventAttributes()
	if continued == nil {
		return nil, nil, nil
	}
	next = &run.Start{RunID: continued.GetNewExecutionRunId()}
	if err := r.Converter.FromPayloads(continued.GetInput(), &next.Input); err != nil {
		return nil, nil, fmt.Errorf("decode input: %w", err)
	}
	if next.Input.Replayed.Serves(id) {
		return next.Input.Replayed, nil, nil
	}
	for _, request := range next.Input.Replays {
		if request.ID == id {
			return nil, next, nil
		}
	}
	return nil, nil, nil
}

// last returns the run's closing event, or the last of one that is open. With
// wait it takes up to 20 seconds for the former.
func (r *Runs) last(ctx context.Context, workflowID, runID string, wait bool) (*historypb.HistoryEvent, error) {
	// The server answers a long poll after 20 seconds at the latest.
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	response, err := r.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: r.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
		WaitNewEvent: wait, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT, SkipArchival: true,
	})
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return nil, errAgain
	}
	if err != nil {
		return nil, fmt.Errorf("read end of %s/%s: %w", workflowID, runID, err)
	}
	events := response.GetHistory().GetEvents()
	if len(events) == 0 {
		return nil, nil
	}
	return events[len(events)-1], nil
}

// closed reports whether the event ends a run.
func closed(event *historypb.HistoryEvent) bool {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		return true
	}
	return false
}

// resultOf reads how a replay was served. An account that is gone upstream is
// changed unless it had no payload before; a worker of before does not say.
func resultOf(served *contract.Replayed) result {
	var change contract.PayloadChange
	if served.Payload != nil {
		change = *served.Payload
	}
	switch {
	case served.Outcome == contract.OutcomeSkipped:
		return result{kind: fresh}
	case served.Outcome == contract.OutcomeUnchanged, served.Payload != nil && change.Before == change.After:
		return result{kind: unchanged}
	}
	return result{kind: changed, change: change}
}

const (
	// requestTimeout bounds a request that does not wait for anything, so that a
	// connection that has died unnoticed holds up no account.
	requestTimeout = 20 * time.Second
	// retryAfter is how long a request that Temporal did not answer waits before
	// it is made again.
	retryAfter = time.Second
)
