// Package parked finds and releases accounts that have been set aside.
//
// A parked account is an open run of type [contract.ParkedAccountSync]; what is
// known of it stands in the input of that run. Temporal is authoritative: there
// is no list kept beside it.
package parked

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// ErrNotParked says that the account is not set aside.
var ErrNotParked = errors.New("account is not parked")

// Account is one parked account.
type Account struct {
	Account    string           `json:"account"`
	WorkflowID string           `json:"workflow_id"`
	RunID      string           `json:"run_id"`
	Changes    int              `json:"changes"` // pending when the run began; signals since are not counted
	FirstAt    time.Time        `json:"first_change_at"`
	NextTry    time.Time        `json:"next_try"`
	Failure    contract.Failure `json:"failure"`
	// Pending are those changes, and Replays the IDs of replays that want a call:
	// what Discard drops.
	Pending []contract.Range `json:"pending"`
	Replays []string         `json:"replays,omitempty"`
}

// Filter chooses accounts. The zero Filter chooses all.
type Filter struct {
	Class          string        // of the latest failure; "" for any
	ReasonContains string        // in the latest failure's reason, whatever the case
	OlderThan      time.Duration // failing for at least this long
}

// Matches reports whether the filter chooses a.
func (f Filter) Matches(a Account, now time.Time) bool {
	return (f.Class == "" || f.Class == a.Failure.Class) &&
		strings.Contains(strings.ToLower(a.Failure.Reason), strings.ToLower(f.ReasonContains)) &&
		now.Sub(a.Failure.Since) >= f.OlderThan
}

// Accounts gives access to the parked accounts of one pipeline.
type Accounts struct {
	Client    client.Client
	Converter converter.DataConverter
	Namespace string
	Pipeline  string
	TaskQueue string
}

// Each calls f for every parked account, in no order, until f fails. Temporal's
// visibility lags by a moment, so an account that was parked just now may be
// missing.
func (a *Accounts) Each(ctx context.Context, f func(Account) error) error {
	var page []byte
	for {
		response, err := a.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: a.Namespace, Query: query(a.Pipeline), NextPageToken: page,
		})
		if err != nil {
			return fmt.Errorf("list parked accounts: %w", err)
		}
		for _, execution := range response.GetExecutions() {
			account, err := a.read(ctx, execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId())
			if errors.Is(err, ErrNotParked) {
				continue // it has gone on meanwhile
			}
			if err != nil {
				return err
			}
			if err := f(account); err != nil {
				return err
			}
		}
		if page = response.GetNextPageToken(); len(page) == 0 {
			return nil
		}
	}
}

// Get returns the parked account of that key, or [ErrNotParked].
func (a *Accounts) Get(ctx context.Context, key string) (Account, error) {
	workflowID := contract.AccountWorkflowID(a.Pipeline, key)
	description, err := a.Client.DescribeWorkflowExecution(ctx, workflowID, "")
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return Account{}, ErrNotParked
	}
	if err != nil {
		return Account{}, fmt.Errorf("describe %s: %w", workflowID, err)
	}
	info := description.GetWorkflowExecutionInfo()
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return Account{}, ErrNotParked
	}
	return a.read(ctx, workflowID, info.GetExecution().GetRunId())
}

// Retry has the parked account tried at once. It returns [ErrNotParked] where
// there is nothing to retry.
func (a *Accounts) Retry(ctx context.Context, key string) error {
	account, err := a.Get(ctx, key)
	if err != nil {
		return err
	}
	return a.RetryShown(ctx, account)
}

// RetryShown is [Accounts.Retry] for an account that was read before.
func (a *Accounts) RetryShown(ctx context.Context, account Account) error {
	if err := a.wake(ctx, account, contract.SignalRetry, nil); err != nil {
		return fmt.Errorf("retry %s: %w", account.WorkflowID, err)
	}
	return nil
}

// Discard has the changes dropped that account shows as pending, and the replays
// that it shows, and no others, and puts on record who wanted that and why. The account's run carries it out
// once a worker takes it up: the row of the sync log comes first. It does nothing
// if the account is not parked any more by then.
func (a *Accounts) Discard(ctx context.Context, account Account, operator, reason string) error {
	err := a.wake(ctx, account, contract.SignalDiscard, contract.Discard{
		Ranges: account.Pending, Replays: account.Replays, Operator: operator, Reason: reason,
	})
	if err != nil {
		return fmt.Errorf("discard %s: %w", account.WorkflowID, err)
	}
	return nil
}

// wake signals the account's run. A plain signal would not wake one that waits
// for its next try. Should the account recover in between, this starts a run that
// finds nothing to do and completes.
func (a *Accounts) wake(ctx context.Context, account Account, signal string, payload any) error {
	_, err := a.Client.SignalWithStartWorkflow(ctx, account.WorkflowID, signal, payload,
		client.StartWorkflowOptions{TaskQueue: a.TaskQueue, Memo: map[string]any{contract.MemoAccount: account.Account}},
		contract.AccountSync, contract.AccountSyncInput{Account: account.Account})
	return err
}

// read reads what is known of a parked run from its start event.
func (a *Accounts) read(ctx context.Context, workflowID, runID string) (Account, error) {
	history := a.Client.GetWorkflowHistory(ctx, workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	event, err := history.Next()
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return Account{}, ErrNotParked
	}
	if err != nil {
		return Account{}, fmt.Errorf("read %s/%s: %w", workflowID, runID, err)
	}
	started := event.GetWorkflowExecutionStartedEventAttributes()
	var in contract.AccountSyncInput
	if err := a.Converter.FromPayloads(started.GetInput(), &in); err != nil {
		return Account{}, fmt.Errorf("read %s/%s: decode input: %w", workflowID, runID, err)
	}
	if !in.Parked() {
		return Account{}, ErrNotParked
	}
	account := Account{
		Account: in.Account, WorkflowID: workflowID, RunID: runID,
		Changes: contract.Count(in.Pending), Failure: *in.Failure, Pending: in.Pending,
		NextTry: event.GetEventTime().AsTime().Add(started.GetFirstWorkflowTaskBackoff().AsDuration()),
	}
	for _, r := range in.Replays {
		account.Replays = append(account.Replays, r.ID)
	}
	if len(in.Pending) > 0 {
		account.FirstAt = contract.FirstChange(in.Pending)
	}
	return account, nil
}
