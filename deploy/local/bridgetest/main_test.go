package bridgetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

var long = flag.Bool("long", false, "also what takes minutes, and with as many accounts as it is promised for")

// longPolls is the frontend's cap.
const longPolls = 120

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	temporal  client.Client
	converter converter.DataConverter
	kafka     *kgo.Client
}

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runAll runs the tests between start and stop of the stack.
func runAll(m *testing.M) (code int, err error) {
	// The server has to be one that is configured here.
	for _, name := range []string{"TEMPORAL_ADDRESS", "KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"} {
		os.Unsetenv(name) //nolint:errcheck
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the server may have to be built first
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{
		Progress:              os.Stderr,
		TemporalDynamicConfig: []string{fmt.Sprintf("frontend.namespaceCount=%d", longPolls)},
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if s.Spanner.InMemory {
		fmt.Fprintln(os.Stderr, "SKIPPED: these tests need the Spanner emulator: gcloud components install cloud-spanner-emulator")
		return 0, nil
	}
	world.Stack, world.converter = s, converter.GetDefaultDataConverter()
	world.temporal, err = client.DialContext(ctx, client.Options{
		HostPort: s.Temporal.Address, Namespace: s.Temporal.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return 1, fmt.Errorf("temporal client: %w", err)
	}
	defer world.temporal.Close()
	world.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...))
	if err != nil {
		return 1, fmt.Errorf("kafka client: %w", err)
	}
	defer world.kafka.Close()
	return m.Run(), nil
}

// until waits until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilWithin(t, 90*time.Second, what, holds)
}

func untilWithin(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
