package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// RecordDiscard writes to the sync log what an operator gave up. It can be
// repeated. A store that is out is an error to be retried; one that refuses is
// not retried, and then the changes stay.
func (a *Activities) RecordDiscard(ctx context.Context, in contract.Discarded) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Lease.Write)
	defer cancel()
	err := a.deps.Store.Discard(ctx, store.Discard{
		Account: in.Account,
		ID:      fmt.Sprintf("%s/discard-%d", activity.GetInfo(ctx).WorkflowExecution.RunID, in.Number),
		Dropped: in.Dropped, Operator: in.Operator, Reason: in.Reason, At: in.At, Tries: in.Tries,
		ReplayID: in.ReplayID,
	})
	switch {
	case err == nil:
		a.deps.Metrics.Count("sync.outcomes", 1, "outcome:"+string(contract.OutcomeDiscarded))
		return nil
	case errors.Is(err, store.ErrRefused):
		a.deps.Log.Error("discard refused", "account", in.Account, "error", err)
		return temporal.NewNonRetryableApplicationError("record discard: "+storeReason(err), "Refused", nil)
	}
	a.deps.Log.Warn("discard is not on record yet", "account", in.Account, "error", err)
	return temporal.NewApplicationError("record discard: "+storeReason(err), "Unavailable")
}
