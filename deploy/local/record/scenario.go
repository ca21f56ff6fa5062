package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/worker/parked"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var settings = contract.Settings{
	Settle: contract.Duration(time.Second), Delay: contract.Duration(2 * time.Second),
	AttemptLease: contract.Duration(20 * time.Second), Heartbeat: contract.Duration(5 * time.Second), ParkAfter: 2,
}

// all plays every scenario. Each is one account's, and names the files of its
// runs in order.
func (r *recorder) all(ctx context.Context) error {
	if err := r.budget(ctx); err != nil {
		return err
	}
	for _, scenario := range []struct {
		account string
		play    func(ctx context.Context, account string) (runID string, err error)
		files   []string
	}{
		{"alice", r.oneCall, []string{"one-call"}},
		{"bob", r.lateJoiner, []string{"late-joiner", "follow-up"}},
		{"carol", r.handedBack, []string{"handed-back"}},
		{"dave", r.failure, []string{"failed", "recovered"}},
		{"erin", r.parked, []string{"failed-first", "failed-and-parked", "parked-and-retried"}},
		{"judy", r.discarded, []string{"discarded"}},
		{"frank", r.fenced, []string{"fenced", "skipped"}},
		{"grace", r.outlivedLease, []string{"outlived-lease", "after-lease"}},
		{"heidi", r.nothingToDo, []string{"nothing-to-do"}},
		{"ivan", r.cancelled, []string{"cancelled"}},
		{"mallory", r.replayed, []string{"replayed"}},
		{"niaj", r.replayedDuringTheCall, []string{"replay-asked-during-call", "replayed-after-call"}},
	} {
		fmt.Fprintln(r.progress, "recording", scenario.files)
		playing, cancel := context.WithTimeout(ctx, time.Minute)
		runID, err := scenario.play(playing, scenario.account)
		if err == nil {
			err = r.write(playing, workflowID(scenario.account), runID, scenario.files)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("scenario of %s: %w", scenario.account, err)
		}
	}
	if err := r.replay(ctx); err != nil {
		return err
	}
	if err := r.spoil("replay-resumed", "must-fail-replay-renamed"); err != nil {
		return err
	}
	return r.spoil("one-call", "must-fail-activity-renamed")
}

// budget records the beginning of the budget's one run: the worker renews its
// share, an operator sets another rate.
func (r *recorder) budget(ctx context.Context) error {
	fmt.Fprintln(r.progress, "recording the budget")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b := budget.Temporal{Client: r.temporal, Pipeline: pipeline, TaskQueue: pipeline}
	err := r.await(ctx, "a worker's share", func() (bool, error) {
		status, err := b.Status(ctx)
		var missing *serviceerror.NotFound
		if errors.As(err, &missing) {
			return false, nil // the worker is about to start it
		}
		return len(status.Workers) > 0, err
	})
	if err != nil {
		return err
	}
	if _, err := b.Set(ctx, rps+1); err != nil {
		return err
	}
	history, err := r.soFar(ctx, contract.BudgetWorkflowID(pipeline), "")
	if err != nil {
		return err
	}
	return r.save("budget", history)
}

func workflowID(account string) string { return contract.AccountWorkflowID(pipeline, account) }

// change makes a change upstream and returns what the bridge would tell of it.
func (r *recorder) change(account string, rules contract.Settings) contract.Changes {
	r.upstream.Change(account)
	r.offset++
	at, position := time.Now().UTC(), contract.Position{Offset: r.offset}
	return contract.Changes{Settings: rules, Ranges: []contract.Range{{
		Source: contract.Source{TopicID: contract.TopicID{1}, Topic: "account-changes"},
		First:  position, Last: position, Count: 1, Oldest: at, Newest: at,
	}}}
}

// start tells of a change and starts a run that waits.
func (r *recorder) start(ctx context.Context, account string, rules contract.Settings) (runID string, err error) {
	return r.startAfter(ctx, account, rules, time.Duration(rules.Delay))
}

func (r *recorder) startAfter(ctx context.Context, account string, rules contract.Settings, delay time.Duration) (runID string, err error) {
	changes := r.change(account, rules)
	runID, _, err = r.bridge.SignalWithStart(ctx, workflowID(account), account, fmt.Sprint("start-", r.offset), changes, delay)
	return runID, err
}

func (r *recorder) signal(ctx context.Context, account string) error {
	changes := r.change(account, settings)
	_, err := r.bridge.Signal(ctx, workflowID(account), fmt.Sprint("signal-", r.offset), changes)
	return err
}

// oneCall: two changes, told while the run waits, and one call for both.
func (r *recorder) oneCall(ctx context.Context, account string) (string, error) {
	runID, err := r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	return runID, r.signal(ctx, account)
}

// lateJoiner: the second change is told during the call.
func (r *recorder) lateJoiner(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Delay: time.Second, Times: 1})
	runID, err := r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 1); err != nil {
		return "", err
	}
	return runID, r.signal(ctx, account)
}

// handedBack: the run starts at once, as after an operator's reset, and the
// activity hands itself back until it is due.
func (r *recorder) handedBack(ctx context.Context, account string) (string, error) {
	return r.startAfter(ctx, account, settings, 0)
}

func (r *recorder) failure(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Status: http.StatusInternalServerError, Times: 1})
	return r.start(ctx, account, settings)
}

// parked: the second failure comes after another account's success, and an
// operator retries before the account would be tried by itself.
func (r *recorder) parked(ctx context.Context, account string) (string, error) {
	runID, err := r.park(ctx, account)
	if err != nil {
		return "", err
	}
	return runID, r.retry(ctx, account)
}

// discarded: an operator gives up what a parked account has been told of.
func (r *recorder) discarded(ctx context.Context, account string) (string, error) {
	if _, err := r.park(ctx, account); err != nil {
		return "", err
	}
	accounts := &parked.Accounts{
		Client: r.temporal, Converter: converter.GetDefaultDataConverter(), Namespace: client.DefaultNamespace,
		Pipeline: pipeline, TaskQueue: pipeline,
	}
	shown, err := accounts.Get(ctx, account)
	if err != nil {
		return "", err
	}
	return shown.RunID, accounts.Discard(ctx, shown, "ada@example.com", "test data")
}

// park starts a run and waits until its account is parked.
func (r *recorder) park(ctx context.Context, account string) (runID string, err error) {
	r.upstream.Inject(account, upstream.Fault{Status: http.StatusBadRequest, Times: 2})
	runID, err = r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 1); err != nil {
		return "", err
	}
	other := settings
	other.Settle, other.Delay = 0, 0
	if _, err := r.startAfter(ctx, "other", other, 0); err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 2); err != nil {
		return "", err
	}
	return runID, r.await(ctx, "parked", func() (bool, error) {
		description, err := r.temporal.DescribeWorkflowExecution(ctx, workflowID(account), "")
		return description.GetWorkflowExecutionInfo().GetType().GetName() == contract.ParkedAccountSync, err
	})
}

// retry wakes the account's run as `worker parked retry` does, or starts one.
func (r *recorder) retry(ctx context.Context, account string) error {
	_, err := r.temporal.SignalWithStartWorkflow(ctx, workflowID(account), contract.SignalRetry, nil,
		startOptions(account), contract.AccountSync, contract.AccountSyncInput{Account: account})
	return err
}

// fenced: somebody else's newer call is written during the call. The next run
// finds it in the row and makes none.
func (r *recorder) fenced(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Delay: time.Second, Times: 1})
	runID, err := r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 1); err != nil {
		return "", err
	}
	_, err = r.store.Write(ctx, store.Sync{
		Account: account, SyncID: "somebody-else", Attempt: 1, CalledAt: time.Now(), Payload: []byte(`{"version":1}`),
		UpstreamStatus: http.StatusOK,
	})
	return runID, err
}

// outlivedLease: upstream takes longer than the attempt may.
func (r *recorder) outlivedLease(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Kind: upstream.Hang, Times: 1})
	short := settings
	short.AttemptLease, short.Heartbeat = contract.Duration(time.Second), contract.Duration(time.Second)
	return r.start(ctx, account, short)
}

// nothingToDo: an account is retried that has no changes.
func (r *recorder) nothingToDo(ctx context.Context, account string) (string, error) {
	run, err := r.temporal.SignalWithStartWorkflow(ctx, workflowID(account), contract.SignalRetry, nil,
		startOptions(account), contract.AccountSync, contract.AccountSyncInput{Account: account})
	if err != nil {
		return "", err
	}
	return run.GetRunID(), nil
}

// cancelled: somebody cancels the run during its call.
func (r *recorder) cancelled(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Delay: time.Second, Times: 1})
	runID, err := r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 1); err != nil {
		return "", err
	}
	return runID, r.temporal.CancelWorkflow(ctx, workflowID(account), runID)
}

// called waits until upstream was called n times for the account.
func (r *recorder) called(ctx context.Context, account string, n int) error {
	return r.await(ctx, fmt.Sprintf("%d calls", n), func() (bool, error) { return len(r.upstream.CallsOf(account)) >= n, nil })
}

func (r *recorder) await(ctx context.Context, what string, condition func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := condition(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}
