package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// parkedPriority is the task-queue priority of parked accounts; the server's
// default, 3, is that of live changes; replays come between them.
const (
	replayPriority = 4
	parkedPriority = 5
)

// maxListed is how many covered ranges a run lists one by one. Merged ones say a
// little more than was called for, if signals between them were lost.
const maxListed = 200

// discardWhenFenced: an order to discard that came during an attempt which was
// fenced used to be lost.
const discardWhenFenced = "discard-when-fenced"

// AccountSync is one sync of one account. It is registered twice, as
// [contract.AccountSync] and, for accounts that have been set aside, as
// [contract.ParkedAccountSync]; Register does both.
//
// A run fails only if its input cannot be decoded or somebody cancels it. A signal
// that cannot be decoded fails the workflow task, see [arrived].
func AccountSync(ctx workflow.Context, in contract.AccountSyncInput) (contract.AccountSyncResult, error) {
	run := accountRun{
		account:  in.Account,
		pending:  in.Pending,
		failure:  in.Failure,
		settings: in.Settings.OrDefault(),
		changes:  workflow.GetSignalChannel(ctx, contract.SignalChanges),
		retry:    workflow.GetSignalChannel(ctx, contract.SignalRetry),
		giveUp:   workflow.GetSignalChannel(ctx, contract.SignalDiscard),
		replay:   workflow.GetSignalChannel(ctx, contract.SignalReplay),
		parked:   in.Parked(),
		replays:  in.Replays,
	}
	run.drain()
	run.discard(ctx)
	if run.nothingToDo() && run.discarded > 0 {
		return contract.AccountSyncResult{Outcome: contract.OutcomeDiscarded}, nil
	}
	if run.nothingToDo() {
		// Somebody retried an account that had nothing to do.
		return contract.AccountSyncResult{Outcome: contract.OutcomeSkipped}, nil
	}
	// The first changes are due by the oldest; what will have settled by the call
	// need not be told apart any more. The call may be long overdue, after an outage
	// or with a parked account, and cannot be made before now.
	due := run.due()
	call := due
	if now := workflow.Now(ctx); call.Before(now) {
		call = now
	}
	run.pending = contract.Coalesce(run.pending, call, run.settings)
	served := run.replays

	var result contract.SyncResult
	err := workflow.ExecuteActivity(run.activityContext(ctx), contract.Sync, contract.SyncInput{
		Account:     run.account,
		Pending:     run.pending,
		NotBefore:   due,
		LastFailure: run.lastFailure(),
		Tries:       run.tries(),
		Parked:      in.Parked(),
		ReplayID:    contract.ReplayIDs(served),
		ReplaySince: contract.Since(served),
		Settings:    run.settings,
	}).Get(ctx, &result)
	if err != nil {
		if temporal.IsCanceledError(err) && ctx.Err() != nil {
			return contract.AccountSyncResult{}, err
		}
		return run.failed(ctx, err)
	}
	return run.synced(ctx, result, served)
}

// accountRun is the state of one run. Nothing in it outlives the run: what the
// next one needs goes through [contract.AccountSyncInput].
type accountRun struct {
	account  string
	pending  []contract.Range
	failure  *contract.Failure
	settings contract.Settings

	parked    bool // the run began as that of an account that was set aside
	discards  []contract.Discard
	discarded int // how many of them have been carried out
	replays   []contract.ReplayRequest

	changes workflow.ReceiveChannel
	retry   workflow.ReceiveChannel
	giveUp  workflow.ReceiveChannel
	replay  workflow.ReceiveChannel
}

func (r *accountRun) settle() time.Duration { return time.Duration(r.settings.Settle) }
func (r *accountRun) delay() time.Duration  { return time.Duration(r.settings.Delay) }

func (r *accountRun) lastFailure() time.Time {
	if r.failure == nil {
		return time.Time{}
	}
	return r.failure.ChargedAt
}

// nothingToDo reports whether no change and no replay wants a call.
func (r *accountRun) nothingToDo() bool { return len(r.pending) == 0 && len(r.replays) == 0 }

// due is when the call is to be made: by the oldest change, at once where a
// replay alone asks for it. So a replay joins the call of changes that wait.
func (r *accountRun) due() time.Time {
	if len(r.pending) == 0 {
		return time.Time{}
	}
	return contract.FirstChange(r.pending).Add(r.delay())
}

func (r *accountRun) tries() int {
	if r.failure == nil {
		return 0
	}
	return r.failure.Tries
}

// drain takes in every signal that has arrived. It has to run right before each
// decision that ends the run: a signal that is still unread then would be gone.
// (One that arrives later makes the server refuse the closing workflow task and
// replay it with the signal.)
func (r *accountRun) drain() {
	known := contract.NewKnown(r.pending)
	for signal := range arrived[contract.Changes](r.changes) {
		r.settings = signal.Settings.OrDefault()
		for _, changes := range signal.Ranges {
			if known.Add(changes) {
				r.pending = append(r.pending, changes)
			}
		}
	}
	// A retry has done its work by waking the run.
	for r.retry.ReceiveAsync(nil) {
	}
	for decision := range arrived[contract.Discard](r.giveUp) {
		r.discards = append(r.discards, decision)
	}
	for request := range arrived[contract.ReplayRequest](r.replay) {
		if !slices.ContainsFunc(r.replays, func(known contract.ReplayRequest) bool { return known.ID == request.ID }) {
			r.replays = append(r.replays, request)
		}
	}
}

// activityContext sets the leases of one attempt. The server repeats only what
// the activity hands back by itself; attempts that fail, outlive their lease or
// lose their worker come back here to be counted.
func (r *accountRun) activityContext(ctx workflow.Context) workflow.Context {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: time.Duration(r.settings.AttemptLease),
		HeartbeatTimeout:    time.Duration(r.settings.Heartbeat),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    time.Second,
			BackoffCoefficient: 1,
			NonRetryableErrorTypes: []string{
				contract.ErrorFailed, "PanicError",
				"TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat",
			},
		},
	}
	switch {
	case r.failure != nil && r.failure.Parked:
		options.Priority = temporal.Priority{PriorityKey: parkedPriority}
	case len(r.pending) == 0:
		options.Priority = temporal.Priority{PriorityKey: replayPriority}
	}
	return workflow.WithActivityOptions(ctx, options)
}

// synced ends a run whose activity came back with a result, and with it the
// replays that had asked before it was scheduled: one that asked later may have
// been too late for the call.
func (r *accountRun) synced(ctx workflow.Context, result contract.SyncResult, served []contract.ReplayRequest) (contract.AccountSyncResult, error) {
	r.drain()
	if result.Outcome == contract.OutcomeFenced {
		if len(r.discards) > 0 && workflow.GetVersion(ctx, discardWhenFenced, workflow.DefaultVersion, 1) == 1 {
			r.discard(ctx)
			if r.nothingToDo() {
				return contract.AccountSyncResult{Outcome: contract.OutcomeDiscarded}, nil
			}
		}
		// A newer call has written. Its row says what it covers; the next run
		// asks it.
		return contract.AccountSyncResult{}, r.continueAsNew(ctx, nil, nil, 0)
	}
	var replayed *contract.Replayed
	if len(served) > 0 {
		replayed = &contract.Replayed{Outcome: result.Outcome, Payload: result.Payload}
		for _, request := range served {
			replayed.IDs = append(replayed.IDs, request.ID)
		}
		r.replays = r.replays[len(served):] // drain only appends
	}
	covered, pending := contract.SplitAt(r.pending, result.CalledAt, result.Version, r.settle(), result.Through)
	if len(covered) > maxListed { // signalled during a long outage; else each stands for itself
		covered = contract.Compact(covered, pending)
	}
	r.pending, r.failure = pending, nil
	if r.nothingToDo() {
		return contract.AccountSyncResult{
			CalledAt: result.CalledAt,
			Covered:  covered,
			Outcome:  result.Outcome,
			Replayed: replayed,
		}, nil
	}
	wait := time.Duration(0)
	if len(pending) > 0 {
		// Late joiners get a call of their own, by their own oldest change.
		workflow.GetMetricsHandler(ctx).Counter("sync.follow_ups").Inc(1)
		wait = r.due().Sub(workflow.Now(ctx))
	}
	return contract.AccountSyncResult{}, r.continueAsNew(ctx, covered, replayed, wait)
}

// failed ends a run whose activity failed, outlived its lease or lost its worker.
func (r *accountRun) failed(ctx workflow.Context, err error) (contract.AccountSyncResult, error) {
	r.drain()
	r.discard(ctx)
	if r.nothingToDo() {
		return contract.AccountSyncResult{Outcome: contract.OutcomeDiscarded}, nil
	}
	attempt := classify(err, workflow.Now(ctx))
	was := r.failure != nil && r.failure.Parked
	r.failure = nextFailure(r.failure, attempt, r.settings.ParkAfter)
	if r.failure.Parked && !was {
		workflow.GetLogger(ctx).Warn("account parked", "account", r.account,
			"failures", r.failure.Count, "since", r.failure.Since, "reason", r.failure.Reason)
		workflow.GetMetricsHandler(ctx).Counter("parked.entered").Inc(1)
	}
	return contract.AccountSyncResult{}, r.continueAsNew(ctx, nil, nil, backoff(*r.failure, attempt, workflow.GetInfo(ctx).WorkflowExecution.RunID))
}

// continueAsNew ends the run and has the next one start after wait. What will
// have settled by then is merged, which keeps the input of an account that fails
// for days as small as that of one that works.
func (r *accountRun) continueAsNew(ctx workflow.Context, covered []contract.Range, replayed *contract.Replayed, wait time.Duration) error {
	wait = max(wait, 0)
	next := contract.AccountSyncInput{
		Account:  r.account,
		Pending:  contract.Coalesce(r.pending, workflow.Now(ctx).Add(wait), r.settings),
		Covered:  covered,
		Failure:  r.failure,
		Settings: r.settings,
		Replays:  r.replays,
		Replayed: replayed,
	}
	name := contract.AccountSync
	if next.Parked() {
		name = contract.ParkedAccountSync
	}
	options := workflow.ContinueAsNewErrorOptions{BackoffStartInterval: wait}
	return workflow.NewContinueAsNewErrorWithOptions(ctx, options, name, next)
}
