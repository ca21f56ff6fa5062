package bridgetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	waitingRuns = 4400
	stuckRuns   = 500
	movingRuns  = 100
)

// TestManyRunsFewLongPolls watches 5,000 open runs, 500 of which are overdue and
// stuck, through a frontend that allows fewer long polls than WATCHERS, and sees
// 100 of them complete over a minute: 95 of 100 within a second.
func TestManyRunsFewLongPolls(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	runs := &run.Client{
		Service: world.temporal.WorkflowService(), Namespace: world.Temporal.Namespace,
		TaskQueue: "watched", Identity: t.Name(), Converter: converter.GetDefaultDataConverter(),
	}
	config := watch.DefaultConfig()
	if config.Watchers <= longPolls {
		t.Fatalf("WATCHERS=%d is to be more than the frontend allows, %d", config.Watchers, longPolls)
	}
	turned := make(chan struct{}, 1)
	watcher := watch.New(config, runs, slog.New(slog.NewTextHandler(t.Output(), nil)), func() {
		select {
		case turned <- struct{}{}:
		default:
		}
	})
	var stopped sync.WaitGroup
	watching, stop := context.WithCancel(ctx)
	stopped.Go(func() { must(t, watcher.Run(watching)) })
	defer stopped.Wait()
	defer stop()

	// A worker that completes what moves as soon as it falls due; the queue of
	// those that are stuck has none.
	w := worker.New(world.temporal, "watched", worker.Options{})
	w.RegisterWorkflowWithOptions(func(workflow.Context) (contract.AccountSyncResult, error) {
		return contract.AccountSyncResult{}, nil
	}, workflow.RegisterOptions{Name: contract.AccountSync})
	must(t, w.Start())
	defer w.Stop()

	began := time.Now()
	var mu sync.Mutex
	seen := map[string]time.Time{}
	create := func(id, queue string, delay time.Duration) (runID string) {
		response, err := runs.Service.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
			Namespace: runs.Namespace, WorkflowId: id, RequestId: id, Identity: t.Name(),
			WorkflowType: &commonpb.WorkflowType{Name: contract.AccountSync}, TaskQueue: &taskqueuepb.TaskQueue{Name: queue},
			WorkflowStartDelay: durationpb.New(delay),
		})
		must(t, err)
		watcher.Add(watch.Target{WorkflowID: id, RunID: response.GetRunId(), Due: time.Now().Add(delay), Report: func(run.End) {
			mu.Lock()
			defer mu.Unlock()
			seen[response.GetRunId()] = time.Now()
		}})
		return response.GetRunId()
	}
	var group errgroup.Group
	group.SetLimit(16)
	for i := range waitingRuns {
		group.Go(func() error { create(fmt.Sprint("waiting/", i), "nobody", time.Hour); return nil })
	}
	for i := range stuckRuns {
		group.Go(func() error { create(fmt.Sprint("stuck/", i), "nobody", 0); return nil })
	}
	must(t, group.Wait())
	created := time.Since(began)

	moving := make([]string, movingRuns)
	for i := range moving {
		moving[i] = create(fmt.Sprint("moving/", i), "watched", 3*time.Second+time.Duration(i)*600*time.Millisecond)
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		for i, runID := range moving {
			if _, ok := seen[runID]; !ok {
				description, err := world.temporal.DescribeWorkflowExecution(context.Background(), fmt.Sprint("moving/", i), runID)
				info := description.GetWorkflowExecutionInfo()
				t.Logf("not seen: %d, status %s, closed %s after due, %v", i, info.GetStatus(), info.GetCloseTime().AsTime().Sub(info.GetExecutionTime().AsTime()), err)
			}
		}
	}()
	// What a long poll misses, looks that grow apart to a minute find.
	untilWithin(t, 3*time.Minute, "every completion is seen", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == movingRuns
	})

	late := make([]time.Duration, movingRuns)
	for i, runID := range moving {
		history := world.temporal.GetWorkflowHistory(ctx, fmt.Sprint("moving/", i), runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
		event, err := history.Next()
		must(t, err)
		late[i] = seen[runID].Sub(event.GetEventTime().AsTime())
	}
	slices.Sort(late)
	p50, p95, most := late[movingRuns/2], late[movingRuns*95/100-1], late[movingRuns-1]
	t.Logf("%d open runs (made in %s), %d of them stuck, WATCHERS %d, frontend cap %d: %d completions seen after p50 %s, p95 %s, at most %s",
		watcher.Open()+movingRuns, created.Round(time.Second), stuckRuns, config.Watchers, longPolls, movingRuns,
		p50.Round(time.Millisecond), p95.Round(time.Millisecond), most.Round(time.Millisecond))
	if p95 > time.Second {
		t.Errorf("p95 is %s, more than a second", p95)
	}
	if open := watcher.Open(); open != waitingRuns+stuckRuns {
		t.Errorf("%d runs are still watched, want %d", open, waitingRuns+stuckRuns)
	}
}
