package parked_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/parked"
)

func TestParkedAccountsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := &mocks.Client{}, 0
		answers := []struct {
			count int64
			err   error
		}{{3, nil}, {0, errors.New("visibility is down")}, {1, nil}}
		c.On("CountWorkflow", mock.Anything, mock.MatchedBy(func(r *workflowservice.CountWorkflowExecutionsRequest) bool {
			return r.Query == "WorkflowType = 'ParkedAccountSync' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'crm/account/'"
		})).Return(func(context.Context, *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
			answer := answers[asked]
			asked++
			return &workflowservice.CountWorkflowExecutionsResponse{Count: answer.count}, answer.err
		})
		tally := telemetry.NewTally(telemetry.Discard)
		counter := parked.NewCounter(&parked.Accounts{Client: c, Pipeline: "crm"}, tally)
		require.Equal(t, parked.Counted{}, counter.Latest(), "nothing is claimed before anything was read")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- counter.Run(ctx) }()
		synctest.Wait()
		first := time.Now()
		require.Equal(t, parked.Counted{Accounts: 3, ReadAt: first}, counter.Latest())
		require.Equal(t, 3.0, tally.Totals().Gauges["parked.accounts"])

		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Equal(t, parked.Counted{Accounts: 3, ReadAt: first, Error: "count parked accounts: visibility is down"}, counter.Latest(),
			"what was read stays, with its time")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Equal(t, parked.Counted{Accounts: 1, ReadAt: first.Add(30 * time.Second)}, counter.Latest())
		require.Equal(t, 3, asked, "one request in 15 s")
		cancel()
		require.NoError(t, <-ended)
	})
}
