// Package service is the worker as a whole: it connects the parts and runs them.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/activities"
	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/deployment"
	"github.com/quiesce-io/quiesce/worker/parked"
	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Deps is what the worker reaches the world through. A team that brings its own
// upstream or store puts it here.
type Deps struct {
	Temporal client.Client
	// Outside are the systems around the worker that can be asked how they are;
	// upstream, which is never asked without need, comes on top.
	Outside  []process.Dependency
	Upstream upstream.Fetcher
	Store    activities.Store
	Logger   *slog.Logger
	Metrics  telemetry.Metrics
}

// Worker is the worker process without its main.
type Worker struct {
	config  Config
	deps    Deps
	fleet   *budget.Fleet
	monitor *health.Monitor
	outside *process.Dependencies
	parked  *parked.Counter
}

// New connects the parts; nothing runs yet.
func New(config Config, deps Deps) *Worker {
	granter := budget.Temporal{Client: deps.Temporal, Pipeline: config.Common.Pipeline, TaskQueue: config.Common.Queue()}
	fleet := budget.NewFleet(config.Budget, granter, deps.Metrics, deps.Logger)
	w := &Worker{config: config, deps: deps, fleet: fleet, monitor: health.NewMonitor(fleet, deps.Logger)}
	w.parked = parked.NewCounter(&parked.Accounts{Client: deps.Temporal, Pipeline: config.Common.Pipeline}, deps.Metrics)
	w.outside = process.NewDependencies(deps.Logger, append(deps.Outside, process.Dependency{
		Name: "upstream", At: "UPSTREAM_URL=" + config.Upstream.URL.String(), Ask: w.upstreamOut,
	})...)
	return w
}

// upstreamOut tells what the breaker found out. It also opens while answers
// cannot be written, which is not upstream's doing.
func (w *Worker) upstreamOut(context.Context) error {
	if breaker := w.monitor.State(); breaker.Open && !strings.Contains(breaker.Cause, "write: ") {
		return errors.New(breaker.Cause)
	}
	return nil
}

// Run polls Temporal for work until ctx is done or the SDK gives up. It stops in
// this order:
//
//  1. no more tasks are taken; syncs that wait are handed back to Temporal
//  2. calls and writes under way finish, for a bounded time
//  3. the share of the budget is given back
//  4. the budget is polled for no more, as it takes a worker to take the share
func (w *Worker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return process.ServeStatus(ctx, w.config.Common.StatusAddr, w.status()) })
	group.Go(func() error { return w.outside.Run(ctx) })
	group.Go(func() error { return w.parked.Run(ctx) })
	sharing, calledLast := context.WithCancel(context.WithoutCancel(ctx))
	defer calledLast()
	group.Go(func() error {
		defer calledLast()
		return poll(ctx, w.syncWorker(), w.config.Common.Queue(), wait)
	})
	group.Go(func() error {
		queue := contract.BudgetTaskQueue(w.config.Common.Queue())
		return RunBudget(sharing, w.deps.Temporal, queue, w.fleet)
	})
	return group.Wait()
}

// wait is the work of a worker that has nothing else to do.
func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// stoppable is a worker that reports why it cannot go on.
type stoppable struct {
	worker.Worker
	fatal <-chan error // capacity 1: the SDK reports one
}

func newWorker(c client.Client, queue string, options worker.Options) stoppable {
	fatal := make(chan error, 1)
	options.OnFatalError = func(err error) {
		select {
		case fatal <- err:
		default:
		}
	}
	return stoppable{worker.New(c, queue, options), fatal}
}

// poll has the worker poll while work runs, until ctx is done.
func poll(ctx context.Context, w stoppable, queue string, work func(context.Context) error) error {
	if err := process.StartWorker(ctx, w); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start worker on Temporal task queue %s: %w", queue, err)
	}
	defer w.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return work(ctx) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.fatal:
			return fmt.Errorf("worker on Temporal task queue %s: %w", queue, err)
		}
	})
	return group.Wait()
}

func (w *Worker) syncWorker() stoppable {
	options := worker.Options{
		MaxConcurrentActivityExecutionSize: w.config.Slots.Sync,
		// An eager activity would bypass the queue, and with it priority.
		DisableEagerActivities: true,
		WorkerStopTimeout:      w.config.stopTimeout(),
		// The SDK would send one heartbeat in 0.8 timeouts, and a frontend that
		// is slow once would make a dead worker of a living one.
		MaxHeartbeatThrottleInterval:     w.config.Sync.Lease.Heartbeat / 3,
		DefaultHeartbeatThrottleInterval: w.config.Sync.Lease.Heartbeat / 3,
	}
	if w.config.Versioning.Enabled {
		options.DeploymentOptions = deployment.Options(w.config.Common.Pipeline, process.Version)
	}
	temporal := newWorker(w.deps.Temporal, w.config.Common.Queue(), options)
	workflows.Register(temporal)
	activities.New(w.config.Sync, activities.Dependencies{
		Upstream: w.deps.Upstream, Store: w.deps.Store, Health: w.monitor,
		Metrics: w.deps.Metrics, Log: w.deps.Logger,
	}).Register(temporal)
	return temporal
}

// RunBudget renews the fleet's share until ctx is done, and runs the small second
// worker that every process has for the budget, on a task queue where no backlog
// of syncs is before it.
func RunBudget(ctx context.Context, c client.Client, queue string, fleet *budget.Fleet) error {
	w := newWorker(c, queue, worker.Options{
		LocalActivityWorkerOnly:                true,
		MaxConcurrentWorkflowTaskExecutionSize: 2,
		MaxConcurrentWorkflowTaskPollers:       2,
		// The process that had the budget in its cache may be gone. Everybody's
		// renewals wait this long before another takes over.
		StickyScheduleToStartTimeout: time.Second,
	})
	workflows.RegisterBudget(w)
	return poll(ctx, w, queue, fleet.Run)
}

// Status is what the worker serves at /status.
type Status struct {
	Pipeline  string       `json:"pipeline"`
	Version   string       `json:"version"`
	TaskQueue string       `json:"task_queue"`
	Breaker   health.State `json:"breaker"`
	Slots     int          `json:"slots"`
	BudgetRPS int          `json:"budget_rps"`
	// Share is this worker's part of what the fleet may call now.
	Share contract.Share `json:"share"`
	// Parked are the pipeline's parked accounts, not only those of this worker.
	Parked parked.Counted `json:"parked"`
}

// Status returns the present state.
func (w *Worker) Status() Status {
	return Status{
		Pipeline: w.config.Common.Pipeline, Version: process.Version, TaskQueue: w.config.Common.Queue(),
		Breaker: w.monitor.State(), Slots: w.config.Slots.Sync, BudgetRPS: w.config.Budget.UpstreamRPS,
		Share: w.fleet.Share(), Parked: w.parked.Latest(),
	}
}

func (w *Worker) status() process.Status {
	ok := func() error { return nil }
	return process.Status{
		Snapshot: func() any { return w.Status() }, Dependencies: w.outside, Metrics: w.deps.Metrics, Live: ok, Ready: ok,
	}
}

// OpenStore opens the Spanner store and checks that its tables are what the
// worker needs, for START_TIMEOUT at most.
func OpenStore(ctx context.Context, config Config, logger *slog.Logger) (*store.Store, error) {
	logger.Info("connecting to Spanner", "at", config.Store.Where())
	started := time.Now()
	s, err := open(ctx, config.Common.StartTimeout, config.Store, (*store.Store).Check)
	if err == nil {
		logger.Info("store is ready", "took", time.Since(started).Round(time.Millisecond))
	}
	return s, err
}

// ReadStore opens the Spanner store for a command that only reads, and waits for
// an answer for START_TIMEOUT at most: the client would wait without end.
func ReadStore(ctx context.Context, common process.Common, config store.Config) (*store.Store, error) {
	return open(ctx, common.StartTimeout, config, (*store.Store).Ping)
}

func open(ctx context.Context, limit time.Duration, config store.Config, check func(*store.Store, context.Context) error) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := store.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := check(s, ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
