package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// pipeline is the PIPELINE that stands in the histories.
const pipeline = "accounts"

// rps is the worker's UPSTREAM_RPS: nothing waits for a permit.
const rps = 100

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := record(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

// record starts the stack and a worker, plays the scenarios and writes their
// histories.
func record(ctx context.Context, args []string, progress io.Writer) (err error) {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	below := flags.String("dir", filepath.Join(root, "workflows", "testdata", "histories"), "directory of the versions' directories")
	version := flags.String("version", "", "version that is recorded, as git describe says it; required")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := newDir(*below, *version, time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute) // the server may have to be built first
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{Progress: progress, Without: []stack.Part{stack.PartKafka}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	env := []string{"PIPELINE=" + pipeline, fmt.Sprint("UPSTREAM_RPS=", rps), "STATUS_ADDR=127.0.0.1:0", "MAX_CLOCK_SKEW=100ms"}
	migrate, err := s.Binary(ctx, "migrate", "worker", []string{"migrate"}, env)
	if err != nil {
		return err
	}
	if err := errors.Join(migrate.Start(), migrate.Wait(ctx)); err != nil {
		return err
	}
	worker, err := s.Binary(ctx, "worker", "worker", []string{"run"}, env)
	if err != nil {
		return err
	}
	if err := worker.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.Kill()) }()

	temporal, err := client.DialContext(ctx, client.Options{
		HostPort: s.Temporal.Address, Namespace: s.Temporal.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("temporal at %s: %w", s.Temporal.Address, err)
	}
	defer temporal.Close()
	cfg := store.Default()
	cfg.Database = s.Spanner.Database
	tables, err := store.Open(ctx, cfg, s.Spanner.ClientOptions()...)
	if err != nil {
		return err
	}
	defer tables.Close()
	if err := tables.Check(ctx); err != nil {
		return err
	}
	r := &recorder{
		upstream: s.Upstream, temporal: temporal, store: tables, dir: dir, progress: progress,
		bridge: &run.Client{
			Service: temporal.WorkflowService(), Namespace: s.Temporal.Namespace, TaskQueue: pipeline,
			Identity: "bridge", Converter: converter.GetDefaultDataConverter(),
		},
	}
	return r.all(ctx)
}

// recorder plays scenarios.
type recorder struct {
	upstream *upstream.Simulator
	temporal client.Client
	bridge   *run.Client
	store    *store.Store
	dir      string
	progress io.Writer

	offset int64 // of the latest change
}
