package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/intake"
)

// TestLastCommitCountsWhatEndsMeanwhile: while the consumer stops, which takes five
// seconds here for a dead letter that nobody takes, runs are watched still.
func TestLastCommitCountsWhatEndsMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		w.refuseLetters(kerr.NotLeaderForPartition) // the client tries again and again
		began := time.Now()
		w.produce(1)
		require.NoError(t, w.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "changes", Partition: 1}).FirstErr())
		time.Sleep(28 * time.Second)
		require.Zero(t, w.committed())
		b.cancel()
		<-b.ended
		require.Greater(t, time.Since(began), 30*time.Second, "when the run is due")
		require.EqualValues(t, 1, w.committed())
	})
}

// TestStoppedPartitionIsNotReady: outside of a bubble, where there are real
// connections.
func TestStoppedPartitionIsNotReady(t *testing.T) {
	w := newWorld(t, nil)
	t.Cleanup(w.close)
	config := w.config()
	config.Kafka.Intake.BadRecord = intake.BadStop
	config.Common.StatusAddr = freeAddress(t)
	b := w.start(config, nil, nil)
	w.until("it has everything", func() bool { return b.owned() == partitions })
	w.until("it is ready", func() bool { return complaint(config.Common.StatusAddr, "readyz") == "" })
	require.NoError(t, w.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "changes"}).FirstErr())
	w.until("a partition is stopped", func() bool { return b.Status().StoppedPartitions == 1 })
	require.Contains(t, complaint(config.Common.StatusAddr, "readyz"), "1 partitions are stopped")
	require.Empty(t, complaint(config.Common.StatusAddr, "livez"), "that is no reason to be restarted")
}
