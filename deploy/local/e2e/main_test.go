package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// parallel is how many tests run at a time, unless -parallel says otherwise:
// they wait more than they work, whatever the number of cores.
const parallel = "6"

// seed repeats the moments of a run's kills, as far as a machine repeats itself.
var seed = flag.Uint64("seed", 0, "seed of the moments at which processes are killed; 0: another one each time, which is printed")

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	temporal       client.Client
	kafka          *kadm.Client
	bridge, worker string // paths of the binaries
	pipelines      atomic.Int32
	ports          atomic.Int32
}

// freePort returns a port that nobody listens on and no other test is given. It
// lies below those that the kernel hands out by itself.
func freePort() (int, error) {
	for range 1000 {
		port := 22000 + int(world.ports.Add(1))
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, errors.New("no port is free")
}

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", parallel) //nolint:errcheck // the flag exists
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runAll runs the tests between start and stop of the stack.
func runAll(m *testing.M) (code int, err error) {
	// Parts of the stack are paused, so they have to be this process's own.
	for _, name := range []string{"TEMPORAL_ADDRESS", "KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"} {
		os.Unsetenv(name) //nolint:errcheck
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the server may have to be built first
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{Progress: os.Stderr})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopped := s.Stop(); stopped != nil && err == nil {
			err = stopped
		}
	}()
	if s.Spanner.InMemory {
		fmt.Fprintln(os.Stderr, "SKIPPED: end-to-end tests need the Spanner emulator: gcloud components install cloud-spanner-emulator")
		return 0, nil
	}
	world.Stack = s
	for path, dir := range map[*string]string{&world.bridge: "bridge", &world.worker: "worker"} {
		if *path, err = stack.BuildBinary(ctx, s.Root, dir); err != nil {
			return 1, err
		}
	}
	world.temporal, err = client.DialContext(ctx, client.Options{
		HostPort: s.Temporal.Address, Namespace: s.Temporal.Namespace, Logger: log.NewStructuredLogger(discard()),
	})
	if err != nil {
		return 1, fmt.Errorf("temporal client: %w", err)
	}
	defer world.temporal.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...))
	if err != nil {
		return 1, fmt.Errorf("kafka client: %w", err)
	}
	world.kafka = kadm.NewClient(cl)
	defer world.kafka.Close()
	// Members that are killed are to be missed soon.
	altered, err := world.kafka.AlterBrokerConfigs(ctx, []kadm.AlterConfig{
		{Name: "group.min.session.timeout.ms", Value: kadm.StringPtr("1000")},
		{Name: "group.consumer.session.timeout.ms", Value: kadm.StringPtr("2000")},
	})
	if err != nil {
		return 1, fmt.Errorf("alter broker configs: %w", err)
	}
	for _, response := range altered {
		if response.Err != nil {
			return 1, fmt.Errorf("alter broker configs: %w", response.Err)
		}
	}

	code = m.Run()
	select {
	case err = <-s.Failed():
	default:
	}
	return code, err
}
