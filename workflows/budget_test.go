package workflows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// budgetRun is one run of Budget in the test environment. Everything that
// happens in it is scheduled before it runs; so those who ask do it through do.
type budgetRun struct {
	t   *testing.T
	env *testsuite.TestWorkflowEnvironment
	ids int
}

func newBudgetRun(t *testing.T, start time.Time) *budgetRun {
	r := &budgetRun{t: t, env: new(testsuite.WorkflowTestSuite).NewTestWorkflowEnvironment()}
	r.env.SetStartTime(start)
	r.env.SetTestTimeout(time.Minute)
	workflows.RegisterBudget(r.env)
	return r
}

// update sends an update now and hands its result to then.
func update[T any](r *budgetRun, name string, arg any, then func(T, error)) {
	r.ids++
	r.env.UpdateWorkflow(name, fmt.Sprint(r.ids), &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { require.NoError(r.t, err) },
		OnComplete: func(result any, err error) {
			var none T
			if err != nil {
				then(none, err)
				return
			}
			then(result.(T), nil)
		},
	}, arg)
}

// run runs until the workflow continues as new, and returns the next input with
// the time.
func (r *budgetRun) run(in contract.BudgetInput) (next contract.BudgetInput, size int) {
	r.t.Helper()
	r.env.ExecuteWorkflow(contract.Budget, in)
	var again *workflow.ContinueAsNewError
	require.True(r.t, errors.As(r.env.GetWorkflowError(), &again), "got %v", r.env.GetWorkflowError())
	require.Equal(r.t, contract.Budget, again.WorkflowType.Name)
	require.NoError(r.t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	for _, payload := range again.Input.Payloads {
		size += len(payload.Data)
	}
	return next, size
}

// at has f run at a time after the start.
func (r *budgetRun) at(d time.Duration, f func()) { r.env.RegisterDelayedCallback(f, d) }

// end has the run continue as new at a time after the start.
func (r *budgetRun) end(d time.Duration) {
	r.at(d, func() {
		r.env.SetContinueAsNewSuggested(true)
		update(r, contract.UpdateRenew, contract.ShareRequest{Worker: "last", Seq: 1}, func(contract.Share, error) {})
	})
}

func TestAFreshBudgetGrantsNothingForOneTTL(t *testing.T) {
	r := newBudgetRun(t, epoch)
	var got []int
	for i, after := range []time.Duration{0, contract.ShareTTL - 1, contract.ShareTTL} {
		r.at(after, func() {
			update(r, contract.UpdateRenew, contract.ShareRequest{Worker: "a", Seq: int64(i + 1), Started: epoch, RPS: 10, Demand: 99},
				func(share contract.Share, err error) {
					require.NoError(t, err)
					got = append(got, share.Calls)
				})
		})
	}
	r.end(20 * time.Second)
	r.run(contract.BudgetInput{})
	require.Equal(t, []int{0, 0, 10}, got)
}

func TestBudgetIsSetAndShown(t *testing.T) {
	r := newBudgetRun(t, epoch)
	r.at(time.Second, func() {
		update(r, contract.UpdateSetBudget, contract.SetBudget{RPS: -1}, func(_ contract.BudgetStatus, err error) { require.Error(t, err) })
		update(r, contract.UpdateSetBudget, contract.SetBudget{RPS: 7}, func(status contract.BudgetStatus, err error) {
			require.NoError(t, err)
			require.Equal(t, 7, status.Budget)
		})
	})
	r.at(2*time.Second, func() {
		value, err := r.env.QueryWorkflow(contract.QueryBudget)
		require.NoError(t, err)
		var status contract.BudgetStatus
		require.NoError(t, value.Get(&status))
		require.Equal(t, 7, status.Budget)
		require.True(t, status.Set)
	})
	r.end(3 * time.Second)
	next, _ := r.run(contract.BudgetInput{})
	require.Equal(t, 7, *next.State.Set)
}

// TestBudgetStateIsInherited: what run 2 begins with is what run 1 ended with.
// A worker that is silent meanwhile keeps its lease, and loses it when it ends.
func TestBudgetStateIsInherited(t *testing.T) {
	state := allot.New(epoch.Add(-time.Minute))
	first := newBudgetRun(t, epoch)
	ask := func(r *budgetRun, after time.Duration, worker string, seq int64, want int) {
		r.at(after, func() {
			update(r, contract.UpdateRenew, contract.ShareRequest{Worker: worker, Seq: seq, Started: epoch, RPS: 10, Demand: 99},
				func(share contract.Share, err error) {
					require.NoError(t, err)
					require.Equal(t, want, share.Calls, "%s at %s", worker, after)
				})
		})
	}
	ask(first, time.Second, "a", 1, 10)
	first.end(2 * time.Second)
	next, _ := first.run(contract.BudgetInput{State: state})
	require.Equal(t, "a", next.State.Workers[0].Worker)
	require.Equal(t, 10, next.State.Workers[0].Lease)
	require.Equal(t, epoch.Add(16*time.Second), next.State.Workers[0].Expires)

	second := newBudgetRun(t, epoch.Add(3*time.Second))
	ask(second, time.Second, "b", 1, 0)
	ask(second, 13*time.Second-1, "b", 2, 0)
	ask(second, 13*time.Second, "b", 3, 10)
	second.end(14 * time.Second)
	second.run(next)
}

// TestRecordedBudget replays a budget's run, recorded from a real server, also up
// to every event at which a worker may pick it up.
//
// To record: FLEET_RECORD=../../../workflows/testdata/budget go test ./fleet -run Forgotten in deploy/local.
func TestRecordedBudget(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "budget", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		for _, event := range history(t, file, 0).GetEvents() {
			if event.GetWorkflowTaskStartedEventAttributes() == nil {
				continue
			}
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{})
			require.NoError(t, err)
			workflows.RegisterBudget(replayer)
			err = replayer.ReplayWorkflowHistory(quiet, history(t, file, event.GetEventId()))
			require.NoError(t, err, "%s up to event %d", file, event.GetEventId())
		}
	}
}

// TestAnHourOfFiftyWorkers: 720 renewals each, as often as they are told to. The
// server takes 2,000 updates a run, and people read inputs of 16 KB.
func TestAnHourOfFiftyWorkers(t *testing.T) {
	const workers, renewals = 50, 720
	type asker struct {
		next time.Time
		seq  int64
		held int
		done int
	}
	now := epoch
	askers := make([]asker, workers)
	for i := range askers {
		askers[i].next = now.Add(time.Duration(i) * 90 * time.Millisecond)
	}
	var in contract.BudgetInput
	runs, done := 0, 0
	for done < workers {
		runs++
		r := newBudgetRun(t, now)
		updates, ended := 0, false
		// The busiest fleet: everybody saturated, and the demand ever changing.
		var schedule func(i int)
		schedule = func(i int) {
			r.at(max(0, askers[i].next.Sub(r.env.Now())), func() {
				a := &askers[i]
				if ended || a.done >= renewals {
					return
				}
				now = r.env.Now()
				request := contract.ShareRequest{
					Worker: fmt.Sprintf("%d@quiesce-worker-6d5f9c7b8d-%05d-0123456789abcdef", i, i), Started: epoch, Seq: a.seq + 1,
					RPS: 1000, Held: a.held, Demand: 100 + int(a.seq)%7*300,
				}
				update(r, contract.UpdateRenew, request, func(share contract.Share, err error) {
					require.NoError(t, err)
					require.LessOrEqual(t, time.Duration(share.Renew), contract.ShareTTL/3)
					updates++
					a.seq++
					a.done++
					if a.done == renewals {
						if done++; done == workers {
							r.env.SetContinueAsNewSuggested(true)
						}
					}
					a.held = share.Calls
					a.next = r.env.Now().Add(time.Duration(share.Renew))
					schedule(i)
				})
			})
		}
		for i := range askers {
			schedule(i)
		}
		var size int
		in, size = r.run(in)
		ended = true
		require.LessOrEqual(t, updates, 1000)
		require.LessOrEqual(t, size, 16<<10)
		leased := 0
		for _, w := range in.State.Workers {
			leased += w.Lease
		}
		require.LessOrEqual(t, leased, 1000)
	}
	require.Greater(t, runs, workers*renewals/1000)
	text, err := json.Marshal(in)
	require.NoError(t, err)
	t.Logf("%d runs, the last input %d bytes, %s of workflow time", runs, len(text), now.Sub(epoch).Round(time.Second))
}
