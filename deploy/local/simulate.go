package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// needVariables returns a usage error that names those that are not set.
func needVariables(names ...string) error {
	var missing []string
	for _, name := range names {
		if os.Getenv(name) == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: set %s: this command works on what runs there", errUsage, strings.Join(missing, " and "))
	}
	return nil
}

// prepareCommand creates topics, instance and database on a Kafka and a Spanner
// emulator that run elsewhere. What exists is left as it is.
func prepareCommand(stop stopper, args []string, stdout, _ io.Writer) error {
	opts := stack.Options{Without: []stack.Part{stack.PartTemporal, stack.PartUpstream}, Root: ".", LogDir: os.TempDir(), Progress: stdout}
	flags := flag.NewFlagSet("prepare", flag.ContinueOnError)
	partitions := flags.Int("partitions", 8, "partitions of the topic of changes")
	flags.StringVar(&opts.Topic, "topic", "account-changes", "topic of changes; its dead letters go to TOPIC-dead-letters")
	flags.StringVar(&opts.Database, "database", "accounts", "database to create in instance projects/quiesce/instances/local")
	if err := parseFlags(flags, "Create topics, instance and database on the Kafka at KAFKA_BROKERS and the Spanner\n"+
		"emulator at SPANNER_EMULATOR_HOST. What exists is left as it is.\n\nNeeds KAFKA_BROKERS and SPANNER_EMULATOR_HOST.", args, stdout); err != nil {
		return err
	}
	if err := needVariables("KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"); err != nil {
		return err
	}
	opts.Partitions = int32(*partitions)
	opts.DeadLetterTopic = opts.Topic + "-dead-letters"
	s, err := stack.Start(stop.soft, opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Topics %s and %s at %s; database %s at %s.\n",
		opts.Topic, opts.DeadLetterTopic, os.Getenv("KAFKA_BROKERS"), s.Spanner.Database, s.Spanner.EmulatorHost)
	return s.Stop()
}

// simulateCommand serves the simulator and makes changes until it is told to
// stop.
func simulateCommand(stop stopper, args []string, stdout, _ io.Writer) error {
	traffic, cfg := load.Default(), upstream.Config{}
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	address := flags.String("listen", "127.0.0.1:8090", "address of the simulated system of record: GET /accounts/{account}; /healthz")
	topic := flags.String("topic", "account-changes", "topic in which changes are announced")
	flags.DurationVar(&cfg.MaxLag, "max-lag", 5*time.Second, "longest time until a change is readable; SETTLE_TIME must not be less")
	flags.Float64Var(&traffic.Rate, "rate", traffic.Rate, "changes a second to make, on average")
	flags.IntVar(&traffic.Accounts, "accounts", traffic.Accounts, "number of accounts")
	flags.Uint64Var(&traffic.Seed, "seed", traffic.Seed, "seed of traffic and lags")
	flags.Float64Var(&traffic.Hot, "hot", traffic.Hot, "share of all bursts that go to one account, 0 to 1")
	if err := parseFlags(flags, "Serve a simulated system of record, make changes in it and announce them on the Kafka\n"+
		"at KAFKA_BROKERS, until SIGINT or SIGTERM. Its accounts are gone with it.\n\nNeeds KAFKA_BROKERS.", args, stdout); err != nil {
		return err
	}
	if err := errors.Join(needVariables("KAFKA_BROKERS"), traffic.Validate()); err != nil {
		if !errors.Is(err, errUsage) {
			err = fmt.Errorf("%w: simulate:\n%w", errUsage, err)
		}
		return err
	}
	cfg.Seed = traffic.Seed
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BROKERS"), ",")...))
	if err != nil {
		return fmt.Errorf("KAFKA_BROKERS=%s: %w", os.Getenv("KAFKA_BROKERS"), err)
	}
	defer client.Close()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("%w: simulate: --listen: %w", errUsage, err)
	}
	simulator := upstream.New(cfg)
	server := &http.Server{Handler: withHealth(simulator), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(stdout, "Upstream http://%s%s{account}, %g changes a second in %d accounts to %s.\n",
		listener.Addr(), upstream.PathPrefix, traffic.Rate, traffic.Accounts, *topic)
	group, ctx := errgroup.WithContext(stop.soft)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("upstream simulator: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		// Closed when the traffic ends too: one without the other is no use.
		defer server.Close()
		return load.New(traffic, simulator, client, *topic).Run(ctx)
	})
	return group.Wait()
}

// withHealth adds /healthz to the simulator, which reads paths itself.
func withHealth(simulator http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			fmt.Fprintln(w, "ok")
			return
		}
		simulator.ServeHTTP(w, r)
	})
}

// healthyCommand fails unless a GET of the URL answers 200: a health check for
// an image without a shell.
func healthyCommand(stop stopper, args []string, stdout, _ io.Writer) error {
	flags := flag.NewFlagSet("healthy URL", flag.ContinueOnError)
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		if err := parseFlags(flags, "Exit with 0 if URL answers 200: a health check for an image without a shell.", args, stdout); err != nil {
			return err
		}
		return fmt.Errorf("%w: healthy: URL is missing", errUsage)
	}
	ctx, cancel := context.WithTimeout(stop.soft, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return fmt.Errorf("%w: healthy: %w", errUsage, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", args[0], response.Status)
	}
	fmt.Fprintln(stdout, "ok")
	return nil
}
