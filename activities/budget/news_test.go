package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"

	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// set replaces what happens to requests from now on.
func (f *fakeTemporal) set(fault func(contract.ShareRequest) (there, back time.Duration, lost bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fakeTemporal) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

func (f *fakeTemporal) status() contract.BudgetStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return allot.Status(f.state, time.Now())
}

// What a request said that never got there is said again.
func TestAThrottledAnswerIsReportedUntilTheBudgetKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(100, 0, temporal, atOnce)
		time.Sleep(time.Second)
		lost := 0
		temporal.set(func(r contract.ShareRequest) (time.Duration, time.Duration, bool) {
			if r.Throttled > 0 && lost < 2 {
				lost++
				return time.Hour, 0, true
			}
			return 0, 0, false
		})
		w.report(0)
		time.Sleep(20 * time.Second)
		require.Less(t, temporal.status().Limit, 100)
		w.stop()
		require.Equal(t, 2, lost)
		time.Sleep(time.Hour)
	})
}

// An answer that was on its way as the suspicion arose knows nothing of it:
//
//	asked ──▶ a row of failures: Suspect ──▶ answer ──▶ asked again ──▶ answer
//	                              no permit ─────────────────────────────▶ permits
func TestAnAnswerToAnOlderRequestDoesNotAllaySuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(100, 100, temporal, atOnce)
		time.Sleep(20 * time.Second)
		temporal.set(func(contract.ShareRequest) (time.Duration, time.Duration, bool) {
			return 0, 300 * time.Millisecond, false
		})
		for before := temporal.requests(); temporal.requests() == before; {
			time.Sleep(time.Millisecond)
		}
		w.Suspect()
		suspected := time.Now()
		time.Sleep(550 * time.Millisecond)
		require.Zero(t, w.since(suspected.Add(1)))
		time.Sleep(150 * time.Millisecond)
		require.Positive(t, w.since(suspected.Add(1)), "the second answer")
		w.stop()
	})
}

// Calls that were on their way as upstream broke down may still succeed.
func TestASuccessWithoutAProbeEndsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		temporal := newTemporal()
		w := startWorker(10, 20, temporal, atOnce)
		time.Sleep(20 * time.Second)
		w.Suspend("500 for everybody", time.Time{})
		time.Sleep(time.Second)
		w.Resume(time.Now())
		time.Sleep(2 * time.Second)
		require.True(t, w.Outage().Open)
		require.True(t, temporal.status().Breaker.Open)
		time.Sleep(4 * time.Second) // the probe
		w.Resume(time.Now())
		time.Sleep(time.Second)
		require.False(t, w.Outage().Open)
		w.stop()
	})
}

// A worker that dies with the budget's task in hand keeps nobody's share from being
// renewed: the task timeout is far below what a share then has left.
func TestTheBudgetIsStartedWithAShortTaskTimeout(t *testing.T) {
	var options client.StartWorkflowOptions
	temporal := mocks.NewClient(t)
	temporal.On("UpdateWorkflow", mock.Anything, mock.Anything).Return(nil, serviceerror.NewNotFound("no run"))
	temporal.On("NewWithStartWorkflowOperation", mock.Anything, contract.Budget, mock.Anything).Return(nil).
		Run(func(args mock.Arguments) { options = args.Get(0).(client.StartWorkflowOptions) })
	temporal.On("UpdateWithStartWorkflow", mock.Anything, mock.Anything).Return(nil, context.DeadlineExceeded)
	_, err := Temporal{Client: temporal, Pipeline: "crm", TaskQueue: "crm"}.Renew(t.Context(), contract.ShareRequest{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "crm/budget", options.ID)
	require.Equal(t, "crm-budget", options.TaskQueue)
	require.Positive(t, options.WorkflowTaskTimeout)
	require.LessOrEqual(t, options.WorkflowTaskTimeout, askTimeout)
}
