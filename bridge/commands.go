package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

func commands() []process.Command {
	settings := service.DefaultConfig()
	return append([]process.Command{
		runCommand(&settings),
		leaseCommand(&settings),
		whereCommand(&settings),
		process.ConfigCommand(&settings, func() error { return settings.Validate() }),
	}, replayCommands()...)
}

func runCommand(settings *service.Config) process.Command {
	return process.Command{
		Name:    "run",
		Summary: "Consume changes, hand them to Temporal, commit what is covered.",
		Help: `Reads the records of KAFKA_TOPICS, each of which says that an account has changed,
and starts or signals one Temporal workflow per account; workers do the rest. An
offset is committed once every change up to it is covered by a call, so any number
of bridges may run, and any of them be killed.

Runs until SIGINT or SIGTERM, then commits, leaves the group and exits; a second
signal ends it at once. What it is doing is on the page at STATUS_ADDR.`,
		Needs: "PIPELINE, KAFKA_BROKERS, KAFKA_TOPICS, DEAD_LETTER_TOPIC (unless BAD_RECORD is stop or skip),\n" +
			"and Temporal at TEMPORAL_ADDRESS",
		Examples: []string{
			"run --pipeline accounts --kafka-brokers localhost:9092 --kafka-topics account-changes --dead-letter-topic account-changes-dead-letters",
			"run    # with all of that in the environment; bridge config shows what it would use",
		},
		Settings: []any{settings},
		Validate: func() error { return settings.Validate() },
		Run: func(ctx context.Context, i *process.Invocation) error {
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

	dialing, cancel := context.WithTimeout(ctx, settings.Common.StartTimeout)
	defer cancel()
	refusals := new(process.Refusals)
	temporal, options, err := process.DialTemporal(dialing, logger, metrics, refusals.Intercept)
	if err != nil {
		return process.Started(ctx, err)
	}
	defer temporal.Close()

	bridge, err := service.New(settings, service.Deps{
		Temporal: temporal, Address: options.HostPort, Namespace: options.Namespace, Identity: options.Identity,
		Converter: options.DataConverter, Logger: logger, Metrics: metrics, Replays: true,
		Outside: []process.Dependency{process.TemporalDependency(temporal, options, refusals)},
	})
	if err != nil {
		return process.UsageError{Err: err}
	}
	return bridge.Run(ctx)
}

func leaseCommand(settings *service.Config) process.Command {
	var batch lease.Batch
	asJSON := false
	return process.Command{
		Name:    "lease",
		Summary: "Print every lease in force with its derivation, or that of a batch.",
		Help: `With --batch, --timeout and --overhead it answers for a batch of that size:
bound = ceil(batch / concurrency) x (timeout + overhead), lease = bound x 1.5,
and whether that is within MAX_DETECTION_DELAY. Exit status 1 if it is not, and
without them if run would refuse a lease.
A lease is the time within which something must have made progress.`,
		Examples: []string{"lease", "lease --batch 500 --timeout 2s --overhead 100ms", "lease --json"},
		Settings: []any{settings},
		Flags: func(flags *flag.FlagSet) {
			flags.IntVar(&batch.Size, "batch", 0, "Size of the batch.")
			flags.IntVar(&batch.Concurrency, "concurrency", 1, "How many of it are worked on at a time.")
			flags.DurationVar(&batch.Timeout, "timeout", 2*time.Second, "Hard timeout of one item.")
			flags.DurationVar(&batch.Overhead, "overhead", 0, "What one item may cost beyond its timeout.")
			flags.BoolVar(&asJSON, "json", false, "Print JSON.")
		},
		Validate: func() error { return settings.Dispatch.Validate() }, // EXECUTORS divides
		Run: func(_ context.Context, i *process.Invocation) error {
			return printLeases(i.Stdout, *settings, batch, asJSON)
		},
	}
}
