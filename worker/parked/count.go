package parked

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// countEvery is how often each worker counts: one request, however many
	// accounts there are, and visibility lags by some seconds anyway.
	countEvery   = 15 * time.Second
	countTimeout = 5 * time.Second
)

// query chooses the runs of a pipeline's parked accounts.
func query(pipeline string) string {
	return fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '%s'",
		contract.ParkedAccountSync, contract.AccountWorkflowPrefix(pipeline))
}

// Count returns how many accounts Temporal's visibility has as parked.
func (a *Accounts) Count(ctx context.Context) (int64, error) {
	response, err := a.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: a.Namespace, Query: query(a.Pipeline), // no namespace: the client's
	})
	if err != nil {
		return 0, fmt.Errorf("count parked accounts: %w", err)
	}
	return response.GetCount(), nil
}

// Counted is how many accounts of the pipeline are parked, whoever parked them.
type Counted struct {
	Accounts int64     `json:"accounts"`
	ReadAt   time.Time `json:"read_at,omitzero"` // zero: they have not been counted yet
	// Error is why they could not be counted since.
	Error string `json:"error,omitempty"`
}

// Counter keeps counting the parked accounts.
type Counter struct {
	accounts *Accounts
	metrics  telemetry.Metrics

	mu     sync.Mutex
	latest Counted
}

// NewCounter returns a Counter that has counted nothing yet.
func NewCounter(accounts *Accounts, metrics telemetry.Metrics) *Counter {
	return &Counter{accounts: accounts, metrics: metrics}
}

// Run counts until ctx is done. That it cannot be done is shown and nothing else:
// no decision rests on the count.
func (c *Counter) Run(ctx context.Context) error {
	ticker := time.NewTicker(countEvery)
	defer ticker.Stop()
	for {
		c.count(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (c *Counter) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	n, err := c.accounts.Count(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.latest.Error = err.Error()
		return
	}
	c.latest = Counted{Accounts: n, ReadAt: time.Now()}
	c.metrics.Gauge("parked.accounts", float64(n))
}

// Latest returns what was counted last.
func (c *Counter) Latest() Counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}
