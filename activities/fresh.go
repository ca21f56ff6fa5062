package activities

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fresh checks what upstream itself says of how new its answer is. Changes that
// have settled by time may carry a version that the answer's does not reach: then
// upstream took longer than the settle time, and the answer is not written. A
// row's call time covers what had settled for it, so it must not stand for an
// answer that is known to lack some of it. Nor is an answer written that is older
// than the row: a replay, or a change without a version, may meet a replica that
// is behind.
//
// The attempt has failed and is tried again within the account lease. Upstream did
// answer, so it is not out and the breaker is not told: with versions, a settle
// time below upstream's worst is a choice, and answers that come too early are its
// price. It is charged to the account only while others succeed: a replica that
// has fallen behind for everybody parks nobody. An account that alone never gets
// there ends parked, which is to say slower and visible, and recovers by itself
// when upstream does.
//
// Where change or answer has no version, where the account is gone, or where one
// version is a number and the other a time, nothing is known, and the settle time
// decides alone.
func (a *attempt) fresh(ctx context.Context, row store.Row, calledAt time.Time, response upstream.Response) error {
	if response.Deleted {
		return nil
	}
	settled, _ := contract.Split(a.in.Pending, calledAt, a.settle, nil)
	wanted, reason := contract.Unsettled(settled, response.Version), "the answer is older than a change that should have settled"
	if wanted.IsZero() && response.Version.OlderThan(row.Version) {
		wanted, reason = row.Version, "the answer is older than the row"
	}
	if wanted.IsZero() {
		return nil
	}
	a.deps.Metrics.Count("sync.unsettled", 1)
	late := slices.DeleteFunc(settled, func(r contract.Range) bool { return !response.Version.OlderThan(r.Version) })
	a.record(ctx, store.Sync{
		Account: a.in.Account, SyncID: a.syncID, Attempt: a.number, CalledAt: calledAt, Tries: a.in.Tries + 1,
		UpstreamStatus: response.Status, UpstreamDuration: response.Duration, Version: response.Version,
		ReplayID: a.in.ReplayID,
	}, late)
	details := []any{"version", response.Version, "wanted", wanted}
	if len(late) > 0 {
		details = append(details, "age", fmt.Sprint(calledAt.Sub(contract.FirstChange(late)).Round(time.Millisecond)))
	}
	return a.fail(contract.FailedAttempt{Class: contract.ClassUnsettled, Reason: reason, Charged: true}, false, "answer is not settled", details...)
}

// record writes the call to the sync log, once: a log that lacks it says less of
// upstream's lag, and nothing else depends on it.
func (a *attempt) record(ctx context.Context, sync store.Sync, late []contract.Range) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Lease.Write)
	defer cancel()
	if err := a.deps.Store.Unsettled(ctx, sync, late); err != nil {
		a.deps.Log.Warn("call is not in the sync log", "account", a.in.Account, "run", a.syncID, "error", err)
	}
}
