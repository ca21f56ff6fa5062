package audit

import (
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// entries tells a run's history.
func (r *Runs) entries(run Run) ([]Entry, error) {
	var entries []Entry
	for _, event := range run.Events {
		e, tell, err := r.entry(event)
		if err != nil {
			return nil, fmt.Errorf("event %d of %s/%s: %w", event.GetEventId(), run.WorkflowID, run.ID, err)
		}
		if !tell {
			continue
		}
		e.At, e.From, e.Run = event.GetEventTime().AsTime(), FromTemporal, run.ID
		entries = append(entries, e)
	}
	return append(entries, pendingEntries(run)...), nil
}

// pendingEntries tells what an open run's activity is doing. Its attempts are
// not in the history until it closes.
func pendingEntries(run Run) []Entry {
	p := run.Pending
	if p == nil {
		return nil
	}
	e := Entry{From: FromTemporal, What: "waiting", Run: run.ID, By: p.GetLastWorkerIdentity()}
	switch {
	case p.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED:
		e.At, e.Text = p.GetLastStartedTime().AsTime(), fmt.Sprintf("attempt %d is running", p.GetAttempt())
	case p.GetLastFailure() != nil:
		e.At, e.What = p.GetLastAttemptCompleteTime().AsTime(), "deferred"
		e.Text = fmt.Sprintf("attempt %d handed back: %s; next at %s", p.GetAttempt()-1, failureText(p.GetLastFailure()), instant(p.GetScheduledTime().AsTime()))
	default:
		e.At, e.Text = p.GetScheduledTime().AsTime(), "in the task queue, no worker has taken it"
	}
	return []Entry{e}
}

func (r *Runs) entry(event *historypb.HistoryEvent) (e Entry, tell bool, err error) {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		return r.started(event.GetWorkflowExecutionStartedEventAttributes())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
		return r.signalled(event.GetWorkflowExecutionSignaledEventAttributes())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		if name := event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName(); name != contract.Sync {
			return Entry{What: "scheduled", Text: "activity " + name}, true, nil
		}
		var in contract.SyncInput
		err = r.Converter.FromPayloads(event.GetActivityTaskScheduledEventAttributes().GetInput(), &in)
		text := fmt.Sprintf("sync of %d changes, not before %s, S %s, D %s", contract.Count(in.Pending), instant(in.NotBefore),
			time.Duration(in.Settings.Settle), time.Duration(in.Settings.Delay))
		if in.ReplayID != "" {
			text += ", for replay " + in.ReplayID
		}
		return Entry{What: "scheduled", Text: text, Ranges: in.Pending}, true, err
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		a := event.GetActivityTaskStartedEventAttributes()
		text := fmt.Sprintf("attempt %d started", a.GetAttempt())
		if a.GetLastFailure() != nil {
			text += fmt.Sprintf(", %d were handed back before it, the last: %s", a.GetAttempt()-1, failureText(a.GetLastFailure()))
		}
		return Entry{What: "attempt", By: a.GetIdentity(), Text: text}, true, nil
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := event.GetActivityTaskCompletedEventAttributes()
		if a.GetResult() == nil { // a discard is on record
			return Entry{What: "result", By: a.GetIdentity(), Text: "done"}, true, nil
		}
		var result contract.SyncResult
		err = r.Converter.FromPayloads(a.GetResult(), &result)
		return Entry{What: "result", By: a.GetIdentity(), Text: fmt.Sprintf("%s, call of %s", result.Outcome, instant(result.CalledAt))}, true, err
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		a := event.GetActivityTaskFailedEventAttributes()
		return Entry{What: "failed", By: a.GetIdentity(), Text: r.failedText(a.GetFailure())}, true, nil
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		return Entry{What: "failed", Text: "attempt outlived its lease: " + failureText(event.GetActivityTaskTimedOutEventAttributes().GetFailure())}, true, nil
	case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		a := event.GetWorkflowTaskFailedEventAttributes()
		return Entry{What: "failed", By: a.GetIdentity(), Text: fmt.Sprintf("workflow task: %s: %s", a.GetCause(), failureText(a.GetFailure()))}, true, nil
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		var result contract.AccountSyncResult
		err = r.Converter.FromPayloads(event.GetWorkflowExecutionCompletedEventAttributes().GetResult(), &result)
		return Entry{What: "completed", Text: fmt.Sprintf("%s, %d changes covered by the call of %s", result.Outcome, contract.Count(result.Covered), instant(result.CalledAt)), Ranges: result.Covered}, true, err
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		return r.continued(event.GetWorkflowExecutionContinuedAsNewEventAttributes())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		a := event.GetWorkflowExecutionTerminatedEventAttributes()
		return Entry{What: "ended", By: a.GetIdentity(), Text: "terminated: " + a.GetReason()}, true, nil
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
		a := event.GetWorkflowExecutionCancelRequestedEventAttributes()
		return Entry{What: "ended", By: a.GetIdentity(), Text: "cancel requested: " + a.GetCause()}, true, nil
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		return Entry{What: "ended", Text: event.GetEventType().String()}, true, nil
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		return Entry{What: "ended", Text: "failed: " + failureText(event.GetWorkflowExecutionFailedEventAttributes().GetFailure())}, true, nil
	}
	return Entry{}, false, nil
}

func (r *Runs) started(a *historypb.WorkflowExecutionStartedEventAttributes) (Entry, bool, error) {
	var in contract.AccountSyncInput
	err := r.Converter.FromPayloads(a.GetInput(), &in)
	e := Entry{What: "started", By: a.GetIdentity(), Ranges: in.Pending}
	e.Text = fmt.Sprintf("run started as %s, waits %s", a.GetWorkflowType().GetName(), a.GetFirstWorkflowTaskBackoff().AsDuration().Round(time.Millisecond))
	if n := contract.Count(in.Pending); n > 0 {
		e.Text += fmt.Sprintf(", %d changes pending", n)
	}
	if f := in.Failure; f != nil {
		e.Text += fmt.Sprintf(", failing since %s: %d tries, %d its own, %s: %s", instant(f.Since), f.Tries, f.Count, f.Class, f.Reason)
	}
	if id := a.GetContinuedExecutionRunId(); id != "" {
		e.Text += ", continues " + id
	}
	return e, true, err
}

func (r *Runs) signalled(a *historypb.WorkflowExecutionSignaledEventAttributes) (Entry, bool, error) {
	e := Entry{By: a.GetIdentity()}
	switch a.GetSignalName() {
	case contract.SignalChanges:
		var signal contract.Changes
		err := r.Converter.FromPayloads(a.GetInput(), &signal)
		e.What, e.Ranges = "signalled", signal.Ranges
		e.Text = fmt.Sprintf("%d changes: %s", contract.Count(signal.Ranges), rangesText(signal.Ranges))
		return e, true, err
	case contract.SignalReplay:
		var request contract.ReplayRequest
		err := r.Converter.FromPayloads(a.GetInput(), &request)
		e.What, e.Text = "replay", fmt.Sprintf("replay %s, asked for by %s", request.ID, request.Operator)
		return e, true, err
	case contract.SignalDiscard:
		var decision contract.Discard
		err := r.Converter.FromPayloads(a.GetInput(), &decision)
		e.What, e.By, e.Ranges = "discard", decision.Operator, decision.Ranges
		e.Text = fmt.Sprintf("%d changes to be given up: %s", contract.Count(decision.Ranges), decision.Reason)
		return e, true, err
	case contract.SignalRetry:
		e.What, e.Text = "retry", "to be tried at once"
	default:
		e.What, e.Text = "signalled", "signal "+a.GetSignalName()
	}
	return e, true, nil
}

func (r *Runs) continued(a *historypb.WorkflowExecutionContinuedAsNewEventAttributes) (Entry, bool, error) {
	var in contract.AccountSyncInput
	err := r.Converter.FromPayloads(a.GetInput(), &in)
	text := fmt.Sprintf("continues as %s %s in %s: %d changes covered, %d pending", a.GetWorkflowType().GetName(), a.GetNewExecutionRunId(),
		a.GetBackoffStartInterval().AsDuration().Round(time.Millisecond), contract.Count(in.Covered), contract.Count(in.Pending))
	return Entry{What: "continued", Text: text, Ranges: in.Covered}, true, err
}

func (r *Runs) failedText(f *failurepb.Failure) string {
	var attempt contract.FailedAttempt
	details := f.GetApplicationFailureInfo().GetDetails()
	if f.GetApplicationFailureInfo().GetType() != contract.ErrorFailed || r.Converter.FromPayloads(details, &attempt) != nil {
		return failureText(f)
	}
	whose := "not charged to the account"
	if attempt.Charged {
		whose = "charged to the account"
	}
	return fmt.Sprintf("%s, %s: %s", attempt.Class, whose, attempt.Reason)
}

// failureText is a failure with its causes in one line.
func failureText(f *failurepb.Failure) string {
	var parts []string
	for ; f != nil; f = f.GetCause() {
		if f.GetMessage() != "" {
			parts = append(parts, f.GetMessage())
		}
	}
	return strings.Join(parts, ": ")
}

func rangesText(ranges []contract.Range) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = fmt.Sprintf("%s/%d", r.Source, r.First.Offset)
		if r.First != r.Last {
			texts[i] = fmt.Sprintf("%s/%d-%d", r.Source, r.First.Offset, r.Last.Offset)
		}
	}
	return strings.Join(texts, " ")
}
