package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// BenchmarkConsume measures one record from fetch to done, with a sink that is
// done at once: what the bridge could take in if Temporal took no time.
func BenchmarkConsume(b *testing.B) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "t"))
	require.NoError(b, err)
	defer cluster.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("t"))
	require.NoError(b, err)
	defer producer.Close()
	for i := range b.N {
		producer.Produce(b.Context(), &kgo.Record{Key: fmt.Appendf(nil, "account-%d", i%5000), Value: make([]byte, 200)}, nil)
	}
	require.NoError(b, producer.Flush(b.Context()))
	cfg := DefaultConfig()
	cfg.Brokers, cfg.Topics, cfg.Group, cfg.Intake.BadRecord = cluster.ListenAddrs(), []string{"t"}, "group", "skip"
	l := ledger.New()
	held := buffer.New(buffer.DefaultConfig(), l)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s := &countingSink{buffer: held, left: b.N, finished: cancel}
	c, err := New(cfg, Deps{Logger: slog.New(slog.DiscardHandler), Metrics: telemetry.Discard, Sink: s, Buffer: held, Ledger: l})
	require.NoError(b, err)
	b.ResetTimer()
	require.NoError(b, c.Run(ctx))
}

type countingSink struct {
	buffer   *buffer.Buffer
	left     int
	finished func()
}

func (s *countingSink) Submit(c buffer.Change) {
	s.buffer.Release(c)
	c.Assignment.Done(c.Position)
	if s.left--; s.left == 0 {
		s.finished()
	}
}
