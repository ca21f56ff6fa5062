package e2e

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
)

// seed repeats the moments of a run's kills, as far as a machine repeats itself.
var seed = flag.Uint64("seed", 0, "seed of the moments at which processes are killed; 0: another one each time, which is printed")

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	temporal  client.Client
	kafka     *kadm.Client
	binaries  map[string]string // paths
	pipelines atomic.Int32
	ports     stacktest.Ports
}

func TestMain(m *testing.M) {
	stacktest.Parallel("6")
	world.ports.After = 22000
	stacktest.Main(m, stack.Options{}, prepare)
}

func prepare(ctx context.Context, s *stack.Stack) (release func(), err error) {
	world.Stack = s
	if world.binaries, err = stacktest.Binaries(ctx, s); err != nil {
		return nil, err
	}
	if world.temporal, err = stacktest.Dial(ctx, s); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers...))
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	world.kafka = kadm.NewClient(cl)
	// Members that are killed are to be missed soon.
	altered, err := world.kafka.AlterBrokerConfigs(ctx, []kadm.AlterConfig{
		{Name: "group.min.session.timeout.ms", Value: kadm.StringPtr("1000")},
		{Name: "group.consumer.session.timeout.ms", Value: kadm.StringPtr("2000")},
	})
	if err != nil {
		return nil, fmt.Errorf("alter broker configs: %w", err)
	}
	for _, response := range altered {
		if response.Err != nil {
			return nil, fmt.Errorf("alter broker configs: %w", response.Err)
		}
	}
	return func() { world.kafka.Close(); world.temporal.Close() }, nil
}
