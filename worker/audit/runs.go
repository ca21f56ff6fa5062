package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Service is what is asked of Temporal; a workflowservice client answers it.
type Service interface {
	ListWorkflowExecutions(context.Context, *workflowservice.ListWorkflowExecutionsRequest, ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error)
	DescribeWorkflowExecution(context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error)
	GetWorkflowExecutionHistory(context.Context, *workflowservice.GetWorkflowExecutionHistoryRequest, ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryResponse, error)
}

// Runs reads the runs of a pipeline's accounts.
type Runs struct {
	Service   Service
	Namespace string
	Pipeline  string
	Converter converter.DataConverter
}

// Run is one run of an account's workflow with its history.
type Run struct {
	WorkflowID string
	ID         string
	Type       string
	Status     enumspb.WorkflowExecutionStatus
	Previous   string // the run that continued as this one; "" for none
	Pending    *workflowpb.PendingActivityInfo
	Events     []*historypb.HistoryEvent
}

// ErrNoRun says that Temporal has no such run, or no longer.
var ErrNoRun = errors.New("no such run in Temporal")

// Of returns the account's runs that were open within the window and that Temporal
// still has, oldest first, and the IDs of those that these name and that are
// gone. Further IDs of runs may be known from elsewhere.
func (r *Runs) Of(ctx context.Context, account string, w Window, further []string) (runs []Run, gone []string, err error) {
	workflowID := contract.AccountWorkflowID(r.Pipeline, account)
	wanted := slices.Clone(further)
	query := fmt.Sprintf("WorkflowId = '%s' AND StartTime < '%s' AND (ExecutionStatus = 'Running' OR CloseTime >= '%s')",
		quoted(workflowID), instant(w.Until), instant(w.Since))
	err = r.list(ctx, query, func(_, runID string) error { wanted = append(wanted, runID); return nil })
	if err != nil {
		return nil, nil, err
	}
	// Visibility lags: the newest run may be missing.
	latest, err := r.describe(ctx, workflowID, "")
	switch {
	case err == nil:
		wanted = append(wanted, latest.ID)
	case !errors.Is(err, ErrNoRun):
		return nil, nil, err
	}
	seen := map[string]bool{}
	for len(wanted) > 0 {
		id := wanted[0]
		wanted = wanted[1:]
		if seen[id] {
			continue
		}
		seen[id] = true
		run, err := r.Read(ctx, workflowID, id)
		if errors.Is(err, ErrNoRun) {
			gone = append(gone, id)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		runs = append(runs, run)
		if run.Previous != "" && !run.Began().Before(w.Since) { // the one before ended when this one began
			wanted = append(wanted, run.Previous)
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Began().Compare(b.Began()) })
	slices.Sort(gone)
	return runs, gone, nil
}

// Began returns when the run was started.
func (r Run) Began() time.Time {
	if len(r.Events) == 0 {
		return time.Time{}
	}
	return r.Events[0].GetEventTime().AsTime()
}

// Read reads one run with its whole history; an empty ID is the latest. It
// returns [ErrNoRun] where there is none.
func (r *Runs) Read(ctx context.Context, workflowID, runID string) (Run, error) {
	run, err := r.describe(ctx, workflowID, runID)
	if err != nil {
		return run, err
	}
	var page []byte
	for {
		response, err := r.Service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: r.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run.ID}, NextPageToken: page,
		})
		if err != nil {
			return run, r.failed("read history of", workflowID, run.ID, err)
		}
		run.Events = append(run.Events, response.GetHistory().GetEvents()...)
		if page = response.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	if len(run.Events) > 0 {
		run.Previous = run.Events[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
	}
	return run, nil
}

func (r *Runs) describe(ctx context.Context, workflowID, runID string) (Run, error) {
	response, err := r.Service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: r.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
	})
	if err != nil {
		return Run{}, r.failed("describe", workflowID, runID, err)
	}
	info := response.GetWorkflowExecutionInfo()
	run := Run{WorkflowID: workflowID, ID: info.GetExecution().GetRunId(), Type: info.GetType().GetName(), Status: info.GetStatus()}
	if pending := response.GetPendingActivities(); len(pending) > 0 {
		run.Pending = pending[0]
	}
	return run, nil
}

func (r *Runs) failed(what, workflowID, runID string, err error) error {
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return ErrNoRun
	}
	return fmt.Errorf("%s %s/%s: %w", what, workflowID, runID, err)
}

// Broken calls f for every parked run that was ended from outside within the
// window: terminated, cancelled, failed or timed out, never by itself.
func (r *Runs) Broken(ctx context.Context, w Window, f func(Run) error) error {
	query := fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus IN ('Terminated', 'Canceled', 'Failed', 'TimedOut')"+
		" AND CloseTime >= '%s' AND CloseTime < '%s' AND WorkflowId STARTS_WITH '%s'",
		contract.ParkedAccountSync, instant(w.Since), instant(w.Until), quoted(contract.AccountWorkflowPrefix(r.Pipeline)))
	return r.list(ctx, query, func(id, runID string) error {
		run, err := r.Read(ctx, id, runID)
		if errors.Is(err, ErrNoRun) {
			return nil // retention took it between the two reads
		}
		if err != nil {
			return err
		}
		return f(run)
	})
}

func (r *Runs) list(ctx context.Context, query string, f func(id, runID string) error) error {
	var page []byte
	for {
		response, err := r.Service.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: r.Namespace, Query: query, NextPageToken: page,
		})
		if err != nil {
			return fmt.Errorf("list runs where %s: %w", query, err)
		}
		for _, execution := range response.GetExecutions() {
			if err := f(execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId()); err != nil {
				return err
			}
		}
		if page = response.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}

// Took returns the account and the changes that the run began with or was
// signalled.
func (r *Runs) Took(run Run) (account string, ranges []contract.Range, err error) {
	for _, event := range run.Events {
		switch {
		case event.GetWorkflowExecutionStartedEventAttributes() != nil:
			var in contract.AccountSyncInput
			if err := r.Converter.FromPayloads(event.GetWorkflowExecutionStartedEventAttributes().GetInput(), &in); err != nil {
				return "", nil, fmt.Errorf("decode input of %s/%s: %w", run.WorkflowID, run.ID, err)
			}
			account, ranges = in.Account, append(ranges, in.Pending...)
		case event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == contract.SignalChanges:
			var signal contract.Changes
			if err := r.Converter.FromPayloads(event.GetWorkflowExecutionSignaledEventAttributes().GetInput(), &signal); err != nil {
				return "", nil, fmt.Errorf("decode signal of %s/%s: %w", run.WorkflowID, run.ID, err)
			}
			ranges = append(ranges, signal.Ranges...)
		}
	}
	return account, ranges, nil
}

// quoted makes text safe between single quotes in a visibility query. Workflow
// IDs hold no quotes, pipelines neither; this is for the day they do.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "''") }
