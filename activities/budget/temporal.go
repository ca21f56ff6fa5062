package budget

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// taskTimeout is the budget's workflow task timeout. A worker that dies with a
// task in hand keeps everybody's renewals waiting for as long, so it is far
// below what a share has left when it is renewed.
const taskTimeout = 2 * time.Second

// Temporal is the [Granter] that asks the pipeline's budget workflow, and starts
// it where there is none.
type Temporal struct {
	Client   client.Client
	Pipeline string
	// TaskQueue is the pipeline's; the budget's derives from it.
	TaskQueue string
}

// Renew implements [Granter]. A request that the server refuses because too many
// are under way is retried by the client's own policy, within ctx.
//
// A run that has just continued as new answers NotFound, as if there were none;
// then, as where there is none, the update goes together with a start, which
// does nothing where a run is open.
func (t Temporal) Renew(ctx context.Context, request contract.ShareRequest) (contract.Share, error) {
	var share contract.Share
	options := t.options(contract.UpdateRenew, request)
	handle, err := t.Client.UpdateWorkflow(ctx, options)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		handle, err = t.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: t.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
				ID: options.WorkflowID, TaskQueue: contract.BudgetTaskQueue(t.TaskQueue),
				WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
				WorkflowTaskTimeout:      taskTimeout,
			}, contract.Budget, contract.BudgetInput{}),
			UpdateOptions: options,
		})
	}
	err = finish(ctx, options, handle, err, &share)
	return share, err
}

// Set makes rps the budget, until UPSTREAM_RPS is changed or Set is called again.
// It is an error that wraps [serviceerror.NotFound] if no worker ever ran.
func (t Temporal) Set(ctx context.Context, rps int) (contract.BudgetStatus, error) {
	var status contract.BudgetStatus
	options := t.options(contract.UpdateSetBudget, contract.SetBudget{RPS: rps})
	handle, err := t.Client.UpdateWorkflow(ctx, options)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) { // the run may just have continued as new
		handle, err = t.Client.UpdateWorkflow(ctx, options)
	}
	err = finish(ctx, options, handle, err, &status)
	return status, err
}

// Status returns the budget's state. It is an error that wraps
// [serviceerror.NotFound] if no worker ever ran.
func (t Temporal) Status(ctx context.Context) (contract.BudgetStatus, error) {
	var status contract.BudgetStatus
	id := contract.BudgetWorkflowID(t.Pipeline)
	value, err := t.Client.QueryWorkflow(ctx, id, "", contract.QueryBudget)
	if err == nil {
		err = value.Get(&status)
	}
	if err != nil {
		return status, fmt.Errorf("query %s: %w", id, err)
	}
	return status, nil
}

func (t Temporal) options(name string, argument any) client.UpdateWorkflowOptions {
	return client.UpdateWorkflowOptions{
		WorkflowID: contract.BudgetWorkflowID(t.Pipeline), UpdateName: name, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	}
}

// finish takes in an update's result.
func finish(ctx context.Context, options client.UpdateWorkflowOptions, handle client.WorkflowUpdateHandle, err error, result any) error {
	if err == nil {
		err = handle.Get(ctx, result)
	}
	if err != nil {
		return fmt.Errorf("update %s of %s: %w", options.UpdateName, options.WorkflowID, err)
	}
	return nil
}
