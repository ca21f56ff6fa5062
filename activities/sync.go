package activities

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// attempt is one execution of [Activities.Sync].
type attempt struct {
	*Activities
	in     contract.SyncInput
	settle time.Duration
	syncID string
	number int32
	clock  clock
}

// Sync makes one upstream call for the account and writes what it brought, if
// the call is due and the row does not cover the pending changes already. It
// makes no more than one call, and none before in.NotBefore.
//
// Its errors are application errors of the types [contract.ErrorDeferred], to be
// retried by the server without end, and [contract.ErrorFailed], not to be
// retried, with a [contract.FailedAttempt].
func (a *Activities) Sync(ctx context.Context, in contract.SyncInput) (result contract.SyncResult, err error) {
	info := activity.GetInfo(ctx)
	t := &attempt{
		Activities: a, in: in, settle: time.Duration(in.Settings.Settle),
		syncID: info.WorkflowExecution.RunID, number: info.Attempt, clock: newClock(info.StartedTime),
	}
	a.compareLeases(time.Duration(in.Settings.AttemptLease))
	waits, stop := accompany(ctx, time.Duration(in.Settings.Heartbeat))
	defer stop()
	defer func() {
		if panicked := recover(); panicked != nil {
			err = t.caught(panicked)
		}
	}()
	return t.run(ctx, waits)
}

// compareLeases complains, once, if the bridge gives attempts less time than this
// worker's timeouts add up to: they would be cut off with nothing wrong.
func (a *Activities) compareLeases(lease time.Duration) {
	if bound := a.cfg.Lease.Account().Attempt.Bound(); lease > 0 && lease < bound {
		a.shortLease.Do(func() {
			a.deps.Log.Error("the bridge allows attempts less time than they may take here; set ROW_CHECK_TIMEOUT, PERMIT_WAIT, UPSTREAM_TIMEOUT and WRITE_TIMEOUT alike for bridge and worker",
				"attempt_lease", lease, "may_take", bound)
		})
	}
}

// run is the attempt. Waits end with the context of that name, all else with ctx.
func (a *attempt) run(ctx, waits context.Context) (contract.SyncResult, error) {
	if err := a.waitUntil(waits, a.in.NotBefore, deferSettle, "settle delay"); err != nil {
		return contract.SyncResult{}, err
	}
	row, err := a.readRow(ctx)
	if err != nil {
		return contract.SyncResult{}, err
	}
	covered, err := a.due(waits, row)
	if err != nil {
		return contract.SyncResult{}, err
	}
	if covered {
		a.deps.Metrics.Count("sync.skipped", 1)
		a.deps.Metrics.Count("sync.outcomes", 1, "outcome:"+string(contract.OutcomeSkipped))
		return contract.SyncResult{Outcome: contract.OutcomeSkipped, CalledAt: row.CalledAt, Through: row.Through, Version: row.Version}, nil
	}
	// The row may still lie ahead, by no more than clocks differ: a call of before it
	// would be fenced.
	if err := a.waitUntil(waits, row.CalledAt, deferClock, "row is of a moment ahead"); err != nil {
		return contract.SyncResult{}, err
	}
	permit, err := a.permit(waits)
	if err != nil {
		return contract.SyncResult{}, err
	}
	calledAt, response, err := a.call(ctx, permit)
	if err != nil {
		return contract.SyncResult{}, err
	}
	if err := a.fresh(ctx, row, calledAt, response); err != nil {
		return contract.SyncResult{}, err
	}
	outcome, err := a.write(ctx, row, calledAt, response)
	if err != nil {
		return contract.SyncResult{}, err
	}
	result := contract.SyncResult{Outcome: outcome, CalledAt: calledAt, Through: row.Through, Version: response.Version}
	if a.in.ReplayID != "" {
		result.Payload = payloadChange(row, response)
	}
	return result, nil
}

// payloadChange says whether the payload is another, for a replay's report. It
// leaves the worker, so it holds no more of the hashes than that takes.
func payloadChange(row store.Row, response upstream.Response) *contract.PayloadChange {
	digits := func(hash string) string { return hash[:min(contract.HashDigits, len(hash))] }
	change := &contract.PayloadChange{Before: digits(row.PayloadHash)}
	if !response.Deleted {
		change.After = digits(store.Hash(response.Body))
	}
	return change
}

// waitUntil waits for an instant in Temporal's clock, if it is no further away
// than [lease.LastSleep], and hands the attempt back otherwise.
func (a *attempt) waitUntil(ctx context.Context, t time.Time, reason, what string) error {
	left := t.Sub(a.clock.now())
	if left > lease.LastSleep {
		return a.deferred(reason, fmt.Sprintf("%s: due in %s", what, left.Round(time.Millisecond)), left)
	}
	if sleep(ctx, left) != nil {
		return a.interrupted(ctx)
	}
	return nil
}

// interrupted is the result of an attempt whose context has ended: handed back
// where the worker is stopping, cancelled where Temporal wants it no more.
func (a *attempt) interrupted(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errStopping) || a.stopping(ctx) {
		return a.deferred(deferShutdown, errStopping.Error(), someSeconds()/5)
	}
	return ctx.Err()
}

// stopping reports whether the worker is shutting down. After its stop timeout
// it ends the activity's context as well, without a cause.
func (a *attempt) stopping(ctx context.Context) bool {
	select {
	case <-activity.GetWorkerStopChannel(ctx):
		return true
	default:
		return false
	}
}

// readRow reads the account's row.
func (a *attempt) readRow(ctx context.Context) (store.Row, error) {
	read, cancel := context.WithTimeout(ctx, a.cfg.Lease.RowCheck)
	defer cancel()
	row, err := a.deps.Store.Read(read, a.in.Account)
	switch {
	case err == nil:
		return row, nil
	case ctx.Err() != nil:
		return row, a.interrupted(ctx)
	case errors.Is(err, store.ErrRefused):
		return row, a.fail(contract.FailedAttempt{
			Class: contract.ClassRefused, Reason: "row check: " + storeReason(err), Charged: true,
		}, false, "row check refused", "error", err)
	}
	return row, a.deferred(deferStore, "row check: "+storeReason(err), someSeconds())
}

// due waits until a call makes sense. It reports true if none is needed: the
// row covers every pending change that is settled now, and is of a call since
// the replays began that asked for one.
func (a *attempt) due(waits context.Context, row store.Row) (covered bool, err error) {
	// A row from the future was written before a clock stepped back. Its time
	// proves nothing: a change that came after the real call would look settled
	// for it. A call now would be fenced. So neither is tried until time has
	// caught up.
	if row.CalledAt.After(a.clock.now().Add(a.cfg.MaxClockSkew)) {
		left := row.CalledAt.Sub(a.clock.now())
		return false, a.deferred(deferClock, fmt.Sprintf("row was called %s in the future: a clock has stepped back", left.Round(time.Millisecond)), left)
	}
	if since := a.in.ReplaySince; a.in.ReplayID != "" && (since.IsZero() || row.CalledAt.Before(since)) {
		return false, nil // asked for, whatever the row covers
	}
	for {
		now := a.clock.now()
		var open []contract.Range // not covered by the row
		var next time.Time        // when the next change will be settled
		settled, openSettled := 0, 0
		for _, r := range a.in.Pending {
			covers := a.covers(r, row)
			if !covers {
				open = append(open, r)
			}
			if r.Settled(now, a.settle) {
				settled++
				if !covers {
					openSettled++
				}
			} else if at := r.Newest.Add(a.settle); next.IsZero() || at.Before(next) {
				next = at
			}
		}
		switch {
		case len(open) == 0 || settled > 0 && openSettled == 0:
			return true, nil
		case settled == 0:
			if err := a.waitUntil(waits, next, deferSettle, "no change has settled"); err != nil {
				return false, err
			}
		default:
			// What is covered already, redelivered, say, is no reason to call
			// early: the call waits for what it is made for. (Not fenced by this
			// row: had it been called later than now, it would cover all that has
			// settled.)
			due := contract.FirstChange(open).Add(time.Duration(a.in.Settings.Delay))
			if len(open) == len(a.in.Pending) || !due.After(now) {
				return false, nil
			}
			if err := a.waitUntil(waits, due, deferSettle, "what the row lacks is not due"); err != nil {
				return false, err
			}
		}
	}
}

// covers reports whether the row covers a range. Its payload may be known to be
// older than a change that its time alone would cover.
func (a *attempt) covers(r contract.Range, row store.Row) bool {
	covered, _ := contract.SplitAt([]contract.Range{r}, row.CalledAt, row.Version, a.settle, row.Through)
	return len(covered) > 0
}

// permit returns a permit that has been started: the call must follow at once.
func (a *attempt) permit(waits context.Context) (budget.Permit, error) {
	ctx, cancel := context.WithTimeout(waits, a.cfg.Lease.PermitWait)
	defer cancel()
	for {
		p, err := a.deps.Health.Acquire(ctx)
		switch {
		case err == nil:
			if p.Start() == nil {
				return p, nil
			}
			continue // this process slept with the permit in its hand
		case waits.Err() != nil:
			return nil, a.interrupted(waits)
		case errors.Is(err, health.ErrOutage):
			return nil, a.deferred(deferOutage, "upstream is out: "+a.deps.Health.State().Cause, someSeconds())
		}
		return nil, a.deferred(deferPermit, "no permit within PERMIT_WAIT", someSeconds())
	}
}

// call makes the one call. A failure is judged, reported and returned as the
// attempt's result.
func (a *attempt) call(ctx context.Context, p budget.Permit) (calledAt time.Time, response upstream.Response, err error) {
	a.deps.Metrics.Count("sync.calls", 1)
	func() {
		defer p.Sent() // a Fetcher may never say so, or panic
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { p.Sent() },
		})
		calledAt = a.clock.now() // before it is sent: what upstream reads is no older
		response, err = a.deps.Upstream.Fetch(traced, a.in.Account)
	}()
	if err == nil {
		a.deps.Metrics.Timing("upstream.latency", response.Duration, "class:"+statusClass(response.Status))
		return calledAt, response, nil
	}
	if ctx.Err() != nil {
		return calledAt, response, a.interrupted(ctx) // says nothing about upstream
	}
	e := asUpstream(err)
	a.deps.Metrics.Timing("upstream.latency", e.Duration, "class:"+statusClass(e.Status))
	if e.Class == contract.ClassThrottled {
		a.deps.Metrics.Count("upstream.throttled", 1)
		p.Throttled(e.RetryAfter)
	}
	// Who demands fewer calls (429) is there.
	return calledAt, response, a.fail(contract.FailedAttempt{
		Class: e.Class, Reason: e.Reason, RetryAfter: contract.Duration(e.RetryAfter), Charged: true,
	}, e.Status != http.StatusTooManyRequests, "call failed", "cause", e.Err)
}

func statusClass(status int) string {
	if status < 100 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}
