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
func (t Temporal) Renew(ctx context.Context, request contract.ShareRequest) (contract.Share, error) {
	var share contract.Share
	err := t.update(ctx, contract.UpdateRenew, request, &share)
	return share, err
}

// Set makes rps the budget, until UPSTREAM_RPS is changed or Set is called again.
func (t Temporal) Set(ctx context.Context, rps int) (contract.BudgetStatus, error) {
	var status contract.BudgetStatus
	err := t.update(ctx, contract.UpdateSetBudget, contract.SetBudget{RPS: rps}, &status)
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

// update sends an update to the budget's present run. A run that has just
// continued as new answers NotFound or that it is closed; then, as where there
// is no run at all, the update goes together with a start, which does nothing
// where a run is open.
func (t Temporal) update(ctx context.Context, name string, argument, result any) error {
	id := contract.BudgetWorkflowID(t.Pipeline)
	options := client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: name, Args: []any{argument}, WaitForStage: client.WorkflowUpdateStageCompleted,
	}
	handle, err := t.Client.UpdateWorkflow(ctx, options)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		handle, err = t.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
			StartWorkflowOperation: t.Client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
				ID: id, TaskQueue: contract.BudgetTaskQueue(t.TaskQueue),
				WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
				WorkflowTaskTimeout:      taskTimeout,
			}, contract.Budget, contract.BudgetInput{}),
			UpdateOptions: options,
		})
	}
	if err != nil {
		return fmt.Errorf("update %s of %s: %w", name, id, err)
	}
	if err := handle.Get(ctx, result); err != nil {
		return fmt.Errorf("update %s of %s: %w", name, id, err)
	}
	return nil
}
