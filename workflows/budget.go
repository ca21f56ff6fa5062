package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// maxBudgetUpdates ends a run of Budget. The server refuses the 2,001st update
// of a run; far fewer keep a replay, after a worker died, well below a workflow
// task's timeout.
const maxBudgetUpdates = 500

// RegisterBudget registers [Budget] under its contract name. It is apart from
// [Register] because it is polled for on a task queue of its own.
func RegisterBudget(registry worker.WorkflowRegistry) {
	registry.RegisterWorkflowWithOptions(Budget, workflow.RegisterOptions{Name: contract.Budget})
}

// Budget shares out UPSTREAM_RPS among workers for as long as the pipeline
// lives. All it decides stands in package allot; here is only what makes the
// decisions durable.
//
// Handlers do not block, so each is done within the workflow task that brought
// it: what continues as new is the state after every update that was answered.
// An update that comes later is refused by the server, and retried by its sender
// against the next run.
//
// A run that an operator's reset made replays its past, and has forgotten what
// was granted after the point it was reset to. So once it has caught up, it
// answers nobody and continues as new without state, which grants nothing for
// one TTL. Which of the two it is doing is no part of the history, so that the
// finished run does not replay: to a replay all of it is past, and the end comes
// unexplained. No worker replays a run that has ended, and a task that was lost
// before the server had its result is made anew, not replayed; only who verifies
// recorded histories must leave these out, and "histories verify" does.
func Budget(ctx workflow.Context, in contract.BudgetInput) error {
	state := in.State
	if state == nil {
		state = allot.New(workflow.Now(ctx))
	}
	info := workflow.GetInfo(ctx)
	forgetful := func() bool {
		return info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID && !workflow.IsReplaying(ctx)
	}
	updates := 0
	refused := func() error {
		updates++
		if forgetful() {
			return temporal.NewApplicationError("the budget was reset and starts anew", "Reset")
		}
		return nil
	}

	err := errors.Join(
		workflow.SetUpdateHandler(ctx, contract.UpdateRenew, func(ctx workflow.Context, r contract.ShareRequest) (contract.Share, error) {
			if err := refused(); err != nil {
				return contract.Share{}, err
			}
			share, err := allot.Renew(state, workflow.Now(ctx), r)
			if err != nil {
				return share, temporal.NewApplicationError(err.Error(), "Superseded")
			}
			return share, nil
		}),
		workflow.SetUpdateHandler(ctx, contract.UpdateSetBudget, func(ctx workflow.Context, order contract.SetBudget) (contract.BudgetStatus, error) {
			if err := refused(); err != nil {
				return contract.BudgetStatus{}, err
			}
			if order.RPS < 0 {
				return contract.BudgetStatus{}, temporal.NewApplicationError("a budget is not negative", "Refused")
			}
			workflow.GetLogger(ctx).Info("budget was set", "rps", order.RPS, "before", allot.Budget(state))
			allot.Set(state, workflow.Now(ctx), order.RPS)
			return allot.Status(state, workflow.Now(ctx)), nil
		}),
		workflow.SetQueryHandler(ctx, contract.QueryBudget, func() (contract.BudgetStatus, error) {
			return allot.Status(state, workflow.Now(ctx)), nil
		}),
	)
	if err != nil {
		return err
	}
	err = workflow.Await(ctx, func() bool {
		return forgetful() || (updates >= maxBudgetUpdates || info.GetContinueAsNewSuggested()) && workflow.AllHandlersFinished(ctx)
	})
	if err != nil {
		return err // cancelled: the next worker to ask starts another run
	}
	if forgetful() {
		return workflow.NewContinueAsNewError(ctx, contract.Budget, contract.BudgetInput{})
	}
	return workflow.NewContinueAsNewError(ctx, contract.Budget, contract.BudgetInput{State: state})
}
