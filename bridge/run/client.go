package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// ErrNotRunning says that no run is open under the workflow ID.
var ErrNotRunning = errors.New("no open run")

// ErrGone says that Temporal no longer knows the run: its retention is over, or
// somebody deleted it.
var ErrGone = errors.New("run is gone")

// Client signals and reads account runs of one pipeline. All fields but Seen are
// needed.
type Client struct {
	Service   workflowservice.WorkflowServiceClient
	Namespace string
	TaskQueue string
	Identity  string // stands in histories as who sent a signal
	Converter converter.DataConverter
	// Seen is called with the time of every event that was read; nil for nobody.
	Seen func(time.Time)
}

// Start says how a run began. It never changes, so it may be kept by run ID.
type Start struct {
	RunID string
	Due   time.Time // when the run makes its call, waiting in the queue not counted
	Input contract.AccountSyncInput
}

// Signal delivers changes to the open run of the workflow ID, whichever it is,
// without waking it, and returns the run that took them. It returns
// [ErrNotRunning] where none is open. requestID makes repetitions of the same
// signal harmless within one run.
func (c *Client) Signal(ctx context.Context, workflowID, requestID string, changes contract.Changes) (runID string, err error) {
	input, err := c.Converter.ToPayloads(changes)
	if err != nil {
		return "", fmt.Errorf("encode signal: %w", err)
	}
	response, err := c.Service.SignalWorkflowExecution(ctx, &workflowservice.SignalWorkflowExecutionRequest{
		Namespace:         c.Namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowID},
		SignalName:        contract.SignalChanges,
		Input:             input,
		Identity:          c.Identity,
		RequestId:         requestID,
	})
	if err != nil {
		if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
			return "", ErrNotRunning
		}
		return "", fmt.Errorf("signal %s: %w", workflowID, err)
	}
	runID = response.GetLink().GetWorkflowEvent().GetRunId()
	if runID == "" {
		return "", fmt.Errorf("signal %s: the response names no run: Temporal %s or newer is needed", workflowID, MinServerVersion)
	}
	return runID, nil
}

// SignalWithStart starts a run that waits for delay, with changes as its first
// signal. Where a run is open already it wakes that one instead and started is
// false: callers try [Client.Signal] first.
func (c *Client) SignalWithStart(ctx context.Context, workflowID, account, requestID string, changes contract.Changes, delay time.Duration) (runID string, started bool, err error) {
	input, err := c.Converter.ToPayloads(contract.AccountSyncInput{Account: account, Settings: changes.Settings})
	if err != nil {
		return "", false, fmt.Errorf("encode input: %w", err)
	}
	signal, err := c.Converter.ToPayloads(changes)
	if err != nil {
		return "", false, fmt.Errorf("encode signal: %w", err)
	}
	memo, err := c.Converter.ToPayload(account)
	if err != nil {
		return "", false, fmt.Errorf("encode memo: %w", err)
	}
	response, err := c.Service.SignalWithStartWorkflowExecution(ctx, &workflowservice.SignalWithStartWorkflowExecutionRequest{
		Namespace:             c.Namespace,
		WorkflowId:            workflowID,
		WorkflowType:          &commonpb.WorkflowType{Name: contract.AccountSync},
		TaskQueue:             &taskqueuepb.TaskQueue{Name: c.TaskQueue},
		Input:                 input,
		Identity:              c.Identity,
		RequestId:             requestID,
		WorkflowIdReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		SignalName:            contract.SignalChanges,
		SignalInput:           signal,
		Memo:                  &commonpb.Memo{Fields: map[string]*commonpb.Payload{contract.MemoAccount: memo}},
		WorkflowStartDelay:    durationpb.New(delay),
	})
	if err != nil {
		return "", false, fmt.Errorf("signal-with-start %s: %w", workflowID, err)
	}
	return response.GetRunId(), response.GetStarted(), nil
}

// Start reads how the run began. It returns [ErrGone] for a run that Temporal
// no longer has. An input that cannot be decoded, now or later, is left empty:
// such a run counts as not parked, and how it ends is worth watching.
func (c *Client) Start(ctx context.Context, workflowID, runID string) (Start, error) {
	response, err := c.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace:       c.Namespace,
		Execution:       &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
		MaximumPageSize: 1,
		SkipArchival:    true,
	})
	if err != nil {
		return Start{}, c.readError(err, "start", workflowID, runID)
	}
	events := response.GetHistory().GetEvents()
	if len(events) == 0 || events[0].GetWorkflowExecutionStartedEventAttributes() == nil {
		return Start{}, fmt.Errorf("read start of %s/%s: history has no start event", workflowID, runID)
	}
	c.saw(events[0])
	started := events[0].GetWorkflowExecutionStartedEventAttributes()
	start := Start{
		RunID: runID,
		Due:   events[0].GetEventTime().AsTime().Add(started.GetFirstWorkflowTaskBackoff().AsDuration()),
	}
	if err := c.Converter.FromPayloads(started.GetInput(), &start.Input); err != nil {
		start.Input = contract.AccountSyncInput{}
	}
	return start, nil
}

// End says how a run ended.
type End struct {
	// Covered are the changes that the run's call covered; no others are.
	Covered []contract.Range
	// Next is the run it continued as; nil if it completed or broke off.
	Next *Start
	// Broken names any other end than completing and continuing: failed,
	// terminated and so on. What it had taken is to be signalled again.
	Broken string
}

// End reads how exactly this run ended, and returns nil while it is open. With
// wait the server holds the request until the run closes or some 20 seconds
// have passed. It returns [ErrGone] for a run that Temporal no longer has.
func (c *Client) End(ctx context.Context, workflowID, runID string, wait bool) (*End, error) {
	response, err := c.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace:              c.Namespace,
		Execution:              &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
		WaitNewEvent:           wait,
		HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
		SkipArchival:           true,
	})
	if err != nil {
		return nil, c.readError(err, "end", workflowID, runID)
	}
	events := response.GetHistory().GetEvents()
	if len(events) == 0 {
		return nil, nil
	}
	c.saw(events[len(events)-1])
	end, err := c.decodeEnd(events[len(events)-1])
	if err != nil {
		// It lists nothing that could be understood, now or later.
		return &End{Broken: "undecodable: " + err.Error()}, nil
	}
	return end, nil
}

func (c *Client) saw(event *historypb.HistoryEvent) {
	if c.Seen != nil {
		c.Seen(event.GetEventTime().AsTime())
	}
}

func (c *Client) decodeEnd(event *historypb.HistoryEvent) (*End, error) {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		var result contract.AccountSyncResult
		err := c.Converter.FromPayloads(event.GetWorkflowExecutionCompletedEventAttributes().GetResult(), &result)
		return &End{Covered: result.Covered}, err
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		continued := event.GetWorkflowExecutionContinuedAsNewEventAttributes()
		next := &Start{
			RunID: continued.GetNewExecutionRunId(),
			Due:   event.GetEventTime().AsTime().Add(continued.GetBackoffStartInterval().AsDuration()),
		}
		err := c.Converter.FromPayloads(continued.GetInput(), &next.Input)
		return &End{Covered: next.Input.Covered, Next: next}, err
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		return &End{Broken: strings.TrimPrefix(event.GetEventType().String(), "WorkflowExecution")}, nil
	default:
		return nil, nil // the last event of a run that is still open
	}
}

func (c *Client) readError(err error, what, workflowID, runID string) error {
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return ErrGone
	}
	return fmt.Errorf("read %s of %s/%s: %w", what, workflowID, runID, err)
}

// Invalid reports whether Temporal refused a request for what it says, so that
// sending it again is pointless. Everything else is worth waiting for, missing
// permissions and a missing namespace included: an operator can mend those. So is
// a run that has had its fill of signals, which the server calls invalid too: the
// next run takes them.
func Invalid(err error) bool {
	invalid := (*serviceerror.InvalidArgument)(nil)
	return errors.As(err, &invalid) && !strings.Contains(invalid.Message, "exceeded workflow execution limit")
}
