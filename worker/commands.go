package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/service"
)

func commands() []process.Command {
	settings := service.DefaultConfig()
	common := process.DefaultCommon("")
	all := append([]process.Command{
		runCommand(&settings),
		migrateCommand(),
		process.ConfigCommand(&settings, func() error { return settings.Validate() }),
	}, parkedCommands(&common)...)
	all = append(all, budgetCommands(&common)...)
	all = append(all, versionsCommands()...)
	return append(all, append(auditCommands(), historiesCommand(), settleCommand())...)
}

func runCommand(settings *service.Config) process.Command {
	return process.Command{
		Name:    "run",
		Summary: "Execute account syncs: wait, call upstream once, write the row.",
		Help: `Waits until an account's changes have settled, takes a permit from the fleet's call
budget, makes one upstream call for all of them, and writes the row and a line of
the sync log. Any number of workers may run, and any of them be killed. The tables
must exist: worker migrate creates them.

Runs until SIGINT or SIGTERM, then finishes calls and writes under way and exits;
a second signal ends it at once. What it is doing is on the page at STATUS_ADDR.`,
		Needs: "PIPELINE, UPSTREAM_URL, UPSTREAM_RPS, SPANNER_DATABASE, and Temporal at TEMPORAL_ADDRESS",
		Examples: []string{
			"run --pipeline accounts --upstream-url 'http://localhost:8090/accounts/{account}' --upstream-rps 50 --spanner-database projects/p/instances/i/databases/d",
			"run    # with all of that in the environment; worker config shows what it would use",
		},
		Settings: []any{settings},
		Validate: func() error { return settings.Validate() },
		Run: func(ctx context.Context, _ *process.Invocation) error {
			return run(ctx, *settings)
		},
	}
}

func run(ctx context.Context, settings service.Config) error {
	logger := settings.Common.Log.Logger(os.Stderr)
	metrics, closeMetrics, err := telemetry.Open(settings.Common.Pipeline, process.Version, logger)
	if err != nil {
		return process.UsageError{Err: err}
	}
	defer func() { _ = closeMetrics() }() // flushes; there is nobody left to tell

	http := upstream.New(settings.Upstream)
	defer http.Close()
	if err := http.Check(); err != nil {
		return process.UsageError{Err: err}
	}
	dialing, cancel := context.WithTimeout(ctx, settings.Common.StartTimeout)
	defer cancel()
	refusals := new(process.Refusals)
	temporal, options, err := process.DialTemporal(dialing, logger, metrics, refusals.Intercept)
	if err != nil {
		return process.Started(ctx, err)
	}
	defer temporal.Close()
	spanner, err := service.OpenStore(ctx, settings, logger)
	if err != nil {
		return process.Started(ctx, err)
	}
	defer spanner.Close()
	// Not an error: accounts wait for an upstream that is out, at start as later on.
	if err := http.Reach(ctx); err != nil && ctx.Err() == nil {
		logger.Warn("upstream cannot be reached; accounts wait until it can", "at", "UPSTREAM_URL="+settings.Upstream.URL.String(), "error", err)
	}
	return service.New(settings, service.Deps{
		Temporal: temporal, Upstream: http, Store: spanner, Logger: logger, Metrics: metrics,
		Outside: []process.Dependency{
			process.TemporalDependency(temporal, options, refusals),
			{Name: "spanner", At: settings.Store.Where(), Ask: spanner.Ping},
		},
	}).Run(ctx)
}

func migrateCommand() process.Command {
	settings := service.DefaultConfig()
	var dryRun, deleteOlder bool
	return process.Command{
		Name:     "migrate",
		Summary:  "Create the Spanner tables or add what they lack.",
		Help:     "The database must exist. Nothing is ever dropped or retyped, and tables that would need\nthat are refused; running it again does nothing.",
		Needs:    "SPANNER_DATABASE",
		Examples: []string{"migrate --dry-run", "migrate --spanner-database projects/p/instances/i/databases/d"},
		Settings: []any{&settings.Store, &settings.Common},
		Flags: func(flags *flag.FlagSet) {
			flags.BoolVar(&dryRun, "dry-run", false, "Print the statements and run none.")
			flags.BoolVar(&deleteOlder, "delete-older", false, "Agree that SYNC_LOG_RETENTION deletes rows that the sync log has now.")
		},
		Validate: func() error { return settings.Store.Validate() },
		Run: func(ctx context.Context, i *process.Invocation) error {
			ctx, cancel := context.WithTimeout(ctx, settings.Common.StartTimeout)
			defer cancel()
			s, err := store.Open(ctx, settings.Store)
			if err != nil {
				return err
			}
			defer s.Close()
			plan, err := s.Plan(ctx, deleteOlder)
			if err == nil && !dryRun {
				err = s.Apply(ctx, plan)
			}
			if err != nil {
				return err
			}
			for _, statement := range plan.Statements {
				fmt.Fprintln(i.Stdout, statement+";")
			}
			switch {
			case len(plan.Statements) == 0:
				fmt.Fprintf(i.Stdout, "nothing to do: the tables are up to date, at schema %d\n", plan.To)
			case dryRun:
				fmt.Fprintf(i.Stdout, "would go from schema %d to %d\n", plan.From, plan.To)
			default:
				fmt.Fprintf(i.Stdout, "from schema %d to %d\n", plan.From, plan.To)
			}
			return nil
		},
	}
}
