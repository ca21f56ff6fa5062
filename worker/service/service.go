// Package service is the worker as a whole: it connects the parts and runs them.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
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
	"github.com/quiesce-io/quiesce/workflows"
)

// Deps is what the worker reaches the world through. A team that brings its own
// upstream or store puts it here.
type Deps struct {
	Temporal client.Client
	Upstream upstream.Fetcher
	Store    activities.Store
	Logger   *slog.Logger
	Metrics  telemetry.Metrics
}

// Worker is the worker process without its main.
type Worker struct {
	config  Config
	deps    Deps
	monitor *health.Monitor
}

// New connects the parts; nothing runs yet.
func New(config Config, deps Deps) *Worker {
	limiter := budget.NewLimiter(config.Budget, deps.Metrics)
	return &Worker{config: config, deps: deps, monitor: health.NewMonitor(limiter, deps.Metrics, deps.Logger)}
}

// Run polls Temporal for work until ctx is done or the SDK gives up. It stops in
// this order:
//
//  1. no more tasks are taken; syncs that wait are handed back to Temporal
//  2. calls and writes under way finish, for a bounded time
func (w *Worker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return process.ServeStatus(ctx, w.config.Common.StatusAddr, w.status()) })
	group.Go(func() error { return w.work(ctx) })
	return group.Wait()
}

func (w *Worker) work(ctx context.Context) error {
	fatal := make(chan error, 1) // the SDK reports one
	temporal := worker.New(w.deps.Temporal, w.config.Common.Queue(), worker.Options{
		MaxConcurrentActivityExecutionSize: w.config.Slots.Sync,
		// An eager activity would bypass the queue, and with it priority.
		DisableEagerActivities: true,
		WorkerStopTimeout:      w.config.stopTimeout(),
		// The SDK would send one heartbeat in 0.8 timeouts, and a frontend that
		// is slow once would make a dead worker of a living one.
		MaxHeartbeatThrottleInterval:     w.config.Sync.Lease.Heartbeat / 3,
		DefaultHeartbeatThrottleInterval: w.config.Sync.Lease.Heartbeat / 3,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	})
	workflows.Register(temporal)
	activities.New(w.config.Sync, activities.Dependencies{
		Upstream: w.deps.Upstream, Store: w.deps.Store, Health: w.monitor,
		Metrics: w.deps.Metrics, Log: w.deps.Logger,
	}).Register(temporal)
	if err := temporal.Start(); err != nil {
		return fmt.Errorf("start worker on Temporal task queue %s: %w", w.config.Common.Queue(), err)
	}
	defer temporal.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("worker on Temporal task queue %s: %w", w.config.Common.Queue(), err)
	}
}

// Status is what the worker serves at /status.
type Status struct {
	Pipeline  string       `json:"pipeline"`
	Version   string       `json:"version"`
	TaskQueue string       `json:"task_queue"`
	Breaker   health.State `json:"breaker"`
	Slots     int          `json:"slots"`
	BudgetRPS int          `json:"budget_rps"`
}

// Status returns the present state.
func (w *Worker) Status() Status {
	return Status{
		Pipeline: w.config.Common.Pipeline, Version: process.Version, TaskQueue: w.config.Common.Queue(),
		Breaker: w.monitor.State(), Slots: w.config.Slots.Sync, BudgetRPS: w.config.Budget.UpstreamRPS,
	}
}

func (w *Worker) status() process.Status {
	ok := func() error { return nil }
	return process.Status{Snapshot: func() any { return w.Status() }, Metrics: w.deps.Metrics, Live: ok, Ready: ok}
}

// OpenStore opens the Spanner store and checks that its tables are what the
// worker needs, for START_TIMEOUT at most.
func OpenStore(ctx context.Context, config Config, logger *slog.Logger) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, config.Common.StartTimeout)
	defer cancel()
	s, err := store.Open(ctx, config.Store)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", whereStore(), err)
	}
	started := time.Now()
	if err := s.Check(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", whereStore(), err)
	}
	logger.Info("store is ready", "database", config.Store.Database, "took", time.Since(started).Round(time.Millisecond))
	return s, nil
}

// whereStore names the settings that say where the store is; the store's own
// errors name the database. An emulator that is gone is told by its address
// alone: the client's error for it is a bare timeout.
func whereStore() string {
	if host := os.Getenv("SPANNER_EMULATOR_HOST"); host != "" {
		return "SPANNER_DATABASE at SPANNER_EMULATOR_HOST=" + host
	}
	return "SPANNER_DATABASE"
}
