package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Recording a discard is one row in Spanner. It is tried again until it works:
// what is dropped must be on record, and while it is not, the account fails with
// everything else that needs the store.
const (
	recordTimeout  = 30 * time.Second
	recordInterval = time.Minute
)

// discard carries out what operators have signalled, if the account was set
// aside when the run began: one that works has nothing to give up, and its
// changes are about to be covered. Changes leave pending only once the sync log
// has taken them.
//
// It ends with a drain, like everything that waits.
func (r *accountRun) discard(ctx workflow.Context) {
	for len(r.discards) > 0 {
		decision := r.discards[0]
		r.discards = r.discards[1:]
		left, dropped := contract.Without(r.pending, decision.Ranges)
		replays, givenUp := contract.WithoutReplays(r.replays, decision.Replays)
		if !r.parked || len(dropped)+len(givenUp) == 0 {
			workflow.GetLogger(ctx).Info("nothing to discard", "account", r.account, "operator", decision.Operator)
			continue
		}
		err := workflow.ExecuteActivity(recordContext(ctx), contract.RecordDiscard, contract.Discarded{
			Account: r.account, Number: r.discarded + 1, Dropped: dropped,
			Operator: decision.Operator, Reason: decision.Reason, At: workflow.Now(ctx), Tries: r.tries(),
			ReplayID: contract.ReplayIDs(givenUp),
		}).Get(ctx, nil)
		if err != nil { // refused, or the run is cancelled: nothing is dropped
			workflow.GetLogger(ctx).Error("discard is not on record, so nothing is dropped", "account", r.account, "error", err)
			r.drain()
			continue
		}
		r.discarded++
		r.pending, r.replays = left, replays
		workflow.GetLogger(ctx).Warn("changes discarded", "account", r.account,
			"changes", contract.Count(dropped), "replays", len(givenUp), "operator", decision.Operator, "reason", decision.Reason)
		r.drain()
	}
}

func recordContext(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: recordTimeout,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: recordInterval,
		},
	})
}
