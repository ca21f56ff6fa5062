package activities

import (
	"context"
	"errors"
	"time"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// firstRetry is how long after a failed write the next is tried; it doubles.
const firstRetry = 50 * time.Millisecond

// write writes what the call brought. An answer is worth a call, so it is
// written even if the worker is stopping, and tried again while WRITE_TIMEOUT
// lasts: the store recognises a commit whose answer was lost.
func (a *attempt) write(ctx context.Context, row store.Row, calledAt time.Time, response upstream.Response) (contract.Outcome, error) {
	// What this call covers, by its time alone: changes that only the row's
	// positions account for are not its merit, nor are they pending.
	covered, pending := contract.SplitAt(a.in.Pending, calledAt, response.Version, a.settle, nil)
	_, pending = contract.SplitAt(pending, row.CalledAt, row.Version, a.settle, row.Through)
	sync := store.Sync{
		Account: a.in.Account, SyncID: a.syncID, Attempt: a.number, CalledAt: calledAt,
		Payload: response.Body, Deleted: response.Deleted, Covered: covered, Pending: pending,
		UpstreamStatus: response.Status, UpstreamDuration: response.Duration, ReplayID: a.in.ReplayID,
		Version: response.Version, Tries: a.in.Tries + 1,
	}
	outcome, err := a.persist(ctx, sync)
	if err == nil {
		a.written(calledAt, outcome, covered)
		return outcome, nil
	}
	f := contract.FailedAttempt{Class: contract.ClassTransient, Reason: "write: " + storeReason(err)}
	if errors.Is(err, store.ErrRefused) {
		f.Class, f.Charged = contract.ClassRefused, true
	}
	// A call whose answer cannot be kept was in vain. Reporting it as failed
	// lets the breaker spare upstream the calls while the store takes no writes.
	return "", a.fail(f, true, "write failed", "error", err)
}

// persist calls Write until the outcome is known or the time is up.
func (a *attempt) persist(ctx context.Context, sync store.Sync) (contract.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Lease.Write)
	defer cancel()
	for delay := firstRetry; ; delay *= 2 {
		outcome, err := a.deps.Store.Write(ctx, sync)
		if err == nil || errors.Is(err, store.ErrRefused) || sleep(ctx, delay) != nil {
			return outcome, err
		}
	}
}

// written reports a success.
func (a *attempt) written(calledAt time.Time, outcome contract.Outcome, covered []contract.Range) {
	now, metrics := a.clock.now(), a.deps.Metrics
	a.deps.Health.Succeeded(a.in.Account, calledAt)
	metrics.Count("sync.outcomes", 1, "outcome:"+string(outcome))
	metrics.Timing("sync.latency", now.Sub(a.clock.started))
	if outcome == contract.OutcomeFenced {
		metrics.Count("sync.fenced", 1)
		return
	}
	metrics.Count("sync.changes", int64(contract.Count(covered)))
	if len(covered) > 0 {
		metrics.Timing("sync.staleness", now.Sub(contract.FirstChange(covered)))
	}
}

// storeReason returns an error of a Store in one line without account data.
func storeReason(err error) string {
	var e *store.Error
	if errors.As(err, &e) {
		return "store: " + e.Reason
	}
	return "store: no answer"
}
