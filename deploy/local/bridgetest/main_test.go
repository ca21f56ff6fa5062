package bridgetest

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
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
	stacktest.Main(m, stack.Options{
		TemporalDynamicConfig: []string{fmt.Sprintf("frontend.namespaceCount=%d", longPolls)},
	}, prepare)
}

func prepare(ctx context.Context, s *stack.Stack) (release func(), err error) {
	world.Stack, world.converter = s, converter.GetDefaultDataConverter()
	if world.temporal, err = stacktest.Dial(ctx, s); err != nil {
		return nil, err
	}
	if world.kafka, err = kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...)); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return func() { world.kafka.Close(); world.temporal.Close() }, nil
}

// until waits until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilWithin(t, 90*time.Second, what, holds)
}

func untilWithin(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	if !stacktest.Within(patience, holds) {
		t.Fatalf("never: %s", what)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
