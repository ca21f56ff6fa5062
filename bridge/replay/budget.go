package replay

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Budget is what the fleet may call in a second, and has use for, now.
type Budget struct {
	Limit int `json:"limit"`
	// InUse is what the workers want for what they have to do, other replays
	// included. Each asks for a little more than it calls, so that it seldom
	// waits.
	InUse int `json:"in_use"`
	// NothingBecause says why Limit is 0.
	NothingBecause string `json:"nothing_because,omitempty"`
}

// Free returns what is left for a replay.
func (b Budget) Free() int { return max(0, b.Limit-b.InUse) }

// WhyNone says why nothing is free.
func (b Budget) WhyNone() string {
	if b.NothingBecause != "" {
		return b.NothingBecause
	}
	return fmt.Sprintf("live changes have use for all of the budget now, %d calls a second", b.Limit)
}

// Budget asks the pipeline's budget.
func (c *Control) Budget(ctx context.Context) (Budget, error) {
	var status contract.BudgetStatus
	value, err := c.Client.QueryWorkflow(ctx, contract.BudgetWorkflowID(c.Pipeline), "", contract.QueryBudget)
	if err == nil {
		err = value.Get(&status)
	}
	if notFound := (*serviceerror.NotFound)(nil); errors.As(err, &notFound) {
		return Budget{}, errors.New("no worker of the pipeline has run, so there is no budget")
	}
	if err != nil {
		return Budget{}, fmt.Errorf("ask the budget (a worker answers): %w", err)
	}
	b := Budget{Limit: status.Limit}
	for _, worker := range status.Workers {
		b.InUse += worker.Demand
	}
	switch {
	case status.Limit > 0:
	case !status.WaitsUntil.IsZero():
		b.NothingBecause = "the budget has just begun and grants nothing yet"
	case status.Breaker.Open:
		b.NothingBecause = "upstream is out: " + status.Breaker.Cause
	case !status.PausedUntil.IsZero():
		b.NothingBecause = "upstream wants no calls for the moment"
	default:
		b.NothingBecause = "the budget is 0"
	}
	return b, nil
}
