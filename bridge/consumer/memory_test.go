package consumer

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// heap returns the live heap in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestPayloadsAreNotHeld: 96 records of almost 1 MiB are admitted and none is done; what
// stays is their keys and positions, and a few batches that the client has
// fetched ahead.
func TestPayloadsAreNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		const records = 96
		for range records {
			k.produce(&kgo.Record{Topic: "one", Key: []byte("alice"), Value: make([]byte, 950<<10)})
		}
		before := heap()
		m := k.start(k.config("one"))
		k.until("all are admitted", func() bool { return len(m.sink.all()) == records })
		time.Sleep(5 * time.Second)
		grown := heap() - before
		t.Logf("%d MiB admitted, %.1f MiB held", records, float64(grown)/(1<<20))
		require.Less(t, grown, int64(24<<20))
		require.Less(t, m.Status().BufferBytes, int64(64<<10))
	})
}

// TestDecompressionBombStopsItsPartitionOnly: some hundred KiB that would be a
// quarter GiB.
func TestDecompressionBombStopsItsPartitionOnly(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		producer, err := kgo.NewClient(append(k.options(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(512<<20), kgo.BrokerMaxWriteBytes(1<<30),
			kgo.MaxDecompressBatchBytes(1<<30))...)
		require.NoError(t, err)
		defer producer.Close()
		k.produce(&kgo.Record{Topic: "four", Partition: 1, Key: []byte("before")})
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "four", Partition: 1, Key: []byte("bomb"), Value: make([]byte, 2*maxBatchBytes)}).FirstErr())
		k.produce(&kgo.Record{Topic: "four", Partition: 1, Key: []byte("after")}, &kgo.Record{Topic: "four", Partition: 2, Key: []byte("other")})
		before := heap()
		m := k.start(k.config("four"))
		k.until("the partition has stopped", func() bool { return m.Status().StoppedPartitions == 1 })
		k.until("the others go on", func() bool { return len(m.sink.all()) == 2 })
		stopped := ""
		for _, p := range m.Status().Partitions {
			stopped += p.Stopped
		}
		require.Contains(t, stopped, "four/1: the batch at offset 1 decompresses to more than 128 MiB")
		require.Contains(t, stopped, "--to-offset 2")
		require.Less(t, heap()-before, int64(32<<20))
	})
}
