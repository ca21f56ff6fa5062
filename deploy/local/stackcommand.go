package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// stackCommand keeps the stack up until it is told to stop or a part fails.
func stackCommand(stop stopper, args []string, stdout, _ io.Writer) error {
	var (
		opts   pipelineOptions
		ports  stack.Options
		rate   float64
		target string
	)
	flags := flag.NewFlagSet("stack", flag.ContinueOnError)
	opts.register(flags)
	flags.IntVar(&ports.TemporalPort, "temporal-port", 7233, "port of Temporal's frontend; 0: a free one, as for the others")
	flags.IntVar(&ports.UIPort, "ui-port", 8233, "port of Temporal's web UI")
	flags.IntVar(&ports.KafkaPort, "kafka-port", 9092, "port of the Kafka broker")
	flags.IntVar(&ports.SpannerPort, "spanner-port", 9010, "port of Spanner")
	flags.IntVar(&ports.UpstreamPort, "upstream-port", 8090, "port of the upstream simulator")
	flags.Float64Var(&rate, "load", 0, "changes a second to make; 0: none")
	flags.StringVar(&target, "env-file", filepath.Join(".cache", "stack.env"), "file to write the environment to, relative to the repository's root")
	if err := parseFlags(flags, "Keep Temporal, Kafka, Spanner and the simulated system of record up until Ctrl-C, and\n"+
		"write the environment that bridge and worker need to find them to a file.\n\n"+
		"Examples, from the repository's root:\n"+
		"  make stack\n"+
		"  make stack ARGS=\"--load 16\"\n"+
		"  make stack ARGS=\"--temporal-port 0 --ui-port 0 --kafka-port 0 --spanner-port 0 --upstream-port 0\"", args, stdout); err != nil {
		return err
	}
	if rate != 0 {
		opts.traffic.Rate = rate
	}
	if err := opts.validate(); err != nil {
		return err
	}
	ports.Progress = stdout
	ports.Partitions = int32(opts.partitions)
	ports.Upstream = upstream.Config{MaxLag: opts.settleTime, Seed: opts.traffic.Seed}
	s, err := stack.Start(stop.soft, ports)
	if err != nil {
		if stop.soft.Err() != nil {
			return nil // told to stop before it was up
		}
		return err
	}
	err = serve(stop, s, opts, rate, target, stdout)
	fmt.Fprintln(stdout, "Stopping.")
	if stopErr := s.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// serve writes the environment file, says how to go on, makes traffic if asked
// to, and returns when told to stop or when a part fails.
func serve(stop stopper, s *stack.Stack, opts pipelineOptions, rate float64, target string, stdout io.Writer) error {
	if !filepath.IsAbs(target) {
		target = filepath.Join(s.Root, target)
	}
	if err := writeEnv(target, s.Pipeline("local", opts.env()...).Env()); err != nil {
		return err
	}
	printStack(stdout, s)
	fmt.Fprintf(stdout, "\nIn two other terminals, in %s:\n\n"+
		"  source %s && go run ./worker migrate && go run ./worker run\n  source %[2]s && go run ./bridge run\n\n"+
		"Their status pages are http://127.0.0.1:8082 (worker) and http://127.0.0.1:8081 (bridge) then.\nCtrl-C stops the stack.\n",
		s.Root, below(s.Root, target))
	ctx, cancel := context.WithCancel(stop.soft)
	defer cancel()
	traffic := make(chan error, 1)
	if rate != 0 {
		client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...))
		if err != nil {
			return fmt.Errorf("kafka client of the load generator: %w", err)
		}
		defer client.Close()
		generator := load.New(opts.traffic, s.Upstream, client, s.Topic())
		go func() { traffic <- generator.Run(ctx) }()
		fmt.Fprintf(stdout, "Making %g changes a second.\n", rate)
	} else {
		close(traffic)
	}
	select {
	case <-stop.soft.Done():
		return <-traffic
	case err := <-s.Failed():
		cancel()
		<-traffic
		return err
	}
}

// writeEnv writes entries as a file for a shell to source. Of two with the same
// name the later wins, as everywhere.
func writeEnv(path string, entries []string) error {
	var lines []string
	for i, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		again := slices.ContainsFunc(entries[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") })
		if !again {
			lines = append(lines, fmt.Sprintf("export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`)))
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("environment file: %w", err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		return fmt.Errorf("environment file: %w", err)
	}
	return nil
}

// below shortens a path that is below root.
func below(root, path string) string {
	if relative, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(relative) {
		return relative
	}
	return path
}

// printStack says what runs where.
func printStack(w io.Writer, s *stack.Stack) {
	fmt.Fprintf(w, "Temporal  %s (%s)\n", s.Temporal.Address, s.Temporal.Kind)
	if s.Temporal.UI != "" {
		fmt.Fprintf(w, "          web UI %s\n", s.Temporal.UI)
	}
	fmt.Fprintf(w, "Kafka     %s (%s)\n", strings.Join(s.Kafka.Brokers, ","), s.Kafka.Kind)
	fmt.Fprintf(w, "Spanner   %s (%s)\n", s.Spanner.EmulatorHost, s.Spanner.Kind)
	fmt.Fprintf(w, "Upstream  %s (simulator)\n", s.UpstreamURL)
	logs := s.LogDir
	if here, err := os.Getwd(); err == nil {
		logs = below(here, logs)
	}
	fmt.Fprintf(w, "Logs      %s\n", logs)
}
