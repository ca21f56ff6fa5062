package where

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// maxRuns bounds how many of an account's runs are read, the newest first.
const maxRuns = 200

// Temporal reads account runs.
type Temporal struct {
	Client    client.Client
	Converter converter.DataConverter
	Namespace string
	Pipeline  string
}

// trace is what the account's runs say of one change.
type trace struct {
	signalled, parked, covered bool
	open                       bool // the run that has it is still open
	events                     []Event
	runs                       int // read
}

// follow reads the account's runs, newest first, and collects what they say of
// the change.
func (t Temporal) follow(ctx context.Context, account string, source contract.Source, at contract.Position) (trace, error) {
	id := contract.AccountWorkflowID(t.Pipeline, account)
	runs, err := t.runs(ctx, id)
	if err != nil {
		return trace{}, err
	}
	var found trace
	for _, runID := range runs {
		if err := t.read(ctx, id, runID, source, at, &found); err != nil {
			return trace{}, err
		}
		found.runs++
	}
	slices.SortStableFunc(found.events, func(a, b Event) int { return a.At.Compare(b.At) })
	return found, nil
}

// runs lists the workflow's runs. Visibility lags by a moment, so the newest is
// asked for by name as well.
func (t Temporal) runs(ctx context.Context, id string) ([]string, error) {
	var runs []string
	newest, err := t.Client.DescribeWorkflowExecution(ctx, id, "")
	if notFound := (*serviceerror.NotFound)(nil); err != nil && !errors.As(err, &notFound) {
		return nil, fmt.Errorf("describe %s: %w", id, err)
	} else if err == nil {
		runs = append(runs, newest.GetWorkflowExecutionInfo().GetExecution().GetRunId())
	}
	var page []byte
	for {
		response, err := t.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: t.Namespace, Query: fmt.Sprintf("WorkflowId = '%s'", strings.ReplaceAll(id, "'", "''")), NextPageToken: page,
		})
		if err != nil {
			return nil, fmt.Errorf("list runs of %s: %w", id, err)
		}
		for _, execution := range response.GetExecutions() {
			if runID := execution.GetExecution().GetRunId(); !slices.Contains(runs, runID) {
				runs = append(runs, runID)
			}
		}
		if page = response.GetNextPageToken(); len(page) == 0 || len(runs) >= maxRuns {
			return runs[:min(len(runs), maxRuns)], nil
		}
	}
}

// read adds what one run says.
func (t Temporal) read(ctx context.Context, id, runID string, source contract.Source, at contract.Position, found *trace) error {
	history := t.Client.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	says := func(event *historypb.HistoryEvent, what string) {
		found.events = append(found.events, Event{
			At: event.GetEventTime().AsTime(), What: what, WorkflowID: id, RunID: runID, Link: Link(t.Namespace, id, runID),
		})
	}
	listed := func(ranges []contract.Range) bool {
		return slices.ContainsFunc(ranges, func(r contract.Range) bool { return r.Contains(source, at) })
	}
	has, parked, open := false, false, true
	for history.HasNext() {
		event, err := history.Next()
		if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
			return nil // its retention has just ended
		}
		if err != nil {
			return fmt.Errorf("read %s/%s: %w", id, runID, err)
		}
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
			started := event.GetWorkflowExecutionStartedEventAttributes()
			parked = started.GetWorkflowType().GetName() == contract.ParkedAccountSync
			var in contract.AccountSyncInput
			if t.Converter.FromPayloads(started.GetInput(), &in) == nil && listed(in.Pending) {
				has = true
				what := "carried on by the next run, not covered yet"
				if in.Failure != nil {
					what = fmt.Sprintf("carried on after %d failed tries, the last: %s: %s", in.Failure.Tries, in.Failure.Class, in.Failure.Reason)
				}
				says(event, what)
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
			signal := event.GetWorkflowExecutionSignaledEventAttributes()
			var changes contract.Changes
			if signal.GetSignalName() == contract.SignalChanges && t.Converter.FromPayloads(signal.GetInput(), &changes) == nil && listed(changes.Ranges) {
				has = true
				says(event, "signalled by "+signal.GetIdentity())
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
			open = false
			var result contract.AccountSyncResult
			if t.Converter.FromPayloads(event.GetWorkflowExecutionCompletedEventAttributes().GetResult(), &result) == nil && listed(result.Covered) {
				found.covered = true
				says(event, fmt.Sprintf("covered by the call of %s: %s", result.CalledAt.UTC().Format("15:04:05.000Z"), result.Outcome))
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
			open = false
			var in contract.AccountSyncInput
			if t.Converter.FromPayloads(event.GetWorkflowExecutionContinuedAsNewEventAttributes().GetInput(), &in) == nil && listed(in.Covered) {
				found.covered = true
				says(event, "covered by the call of this run, which went on for later changes")
			}
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
			enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
			open = false
			if has {
				says(event, "run ended without a result ("+strings.TrimPrefix(event.GetEventType().String(), "WorkflowExecution")+"); the bridge signals again")
			}
		}
	}
	if has {
		found.signalled = true
		found.open = found.open || open
		found.parked = found.parked || parked && open
	}
	return nil
}
