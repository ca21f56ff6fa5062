package activities

import (
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fresh checks what upstream itself says of how new its answer is. Changes that
// have settled by time may carry a version that the answer's does not reach: then
// upstream took longer than the settle time, and the answer is not written. A
// row's call time covers what had settled for it, so it must not stand for an
// answer that is known to lack some of it.
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
func (a *attempt) fresh(calledAt time.Time, response upstream.Response) error {
	if response.Deleted {
		return nil
	}
	settled, _ := contract.Split(a.in.Pending, calledAt, a.settle, nil)
	wanted := contract.Unsettled(settled, response.Version)
	if wanted.IsZero() {
		return nil
	}
	a.deps.Metrics.Count("sync.unsettled", 1)
	f := contract.FailedAttempt{
		Class: contract.ClassUnsettled, Reason: "the answer is older than a change that should have settled",
		Charged: a.deps.Health.Charged(a.in.Account, a.in.LastFailure),
	}
	a.deps.Log.Warn("answer is not settled", "account", a.in.Account, "run", a.syncID,
		"version", response.Version, "wanted", wanted, "age", fmt.Sprint(calledAt.Sub(contract.FirstChange(settled)).Round(time.Millisecond)), "charged", f.Charged)
	return a.failed(f)
}
