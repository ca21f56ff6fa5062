package consumer

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
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

// peak returns the function that stops watching the heap and returns by how much
// it grew at most, garbage included. It is called outside of the bubble, whose
// time would not let it sleep, and collects garbage at every tenth more.
func peak(t *testing.T) (reset func(), grown func() int64) {
	t.Helper()
	percent := debug.SetGCPercent(10)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var base, most atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			metrics.Read(sample)
			most.Store(max(most.Load(), int64(sample[0].Value.Uint64())))
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return func() { base.Store(heap()); most.Store(0) }, func() int64 { return most.Load() - base.Load() }
}

// TestPayloadsAreNotHeld: 96 records of almost 1 MiB are admitted and none is done; what
// stays is their keys and positions, and a few batches that the client has
// fetched ahead.
func TestPayloadsAreNotHeld(t *testing.T) {
	reset, most := peak(t)
	bubble(t, func(t *testing.T, k *kafka) {
		const records = 96
		for range records {
			k.produce(&kgo.Record{Topic: "one", Key: []byte("alice"), Value: make([]byte, 950<<10)})
		}
		reset()
		before := heap()
		m := k.start(k.config("one"))
		k.until("all are admitted", func() bool { return len(m.sink.all()) == records })
		time.Sleep(5 * time.Second)
		grown := heap() - before
		t.Logf("%d MiB admitted, %.1f MiB held, %.1f MiB at most on the way", records, float64(grown)/(1<<20), float64(most())/(1<<20))
		require.Less(t, grown, int64(24<<20))
		require.Less(t, most(), int64(64<<20))
		require.Less(t, m.Status().BufferBytes, int64(64<<10))
	})
}

// TestDecompressionBombStopsItsPartitionOnly: some hundred KiB that would be
// 128 MiB.
func TestDecompressionBombStopsItsPartitionOnly(t *testing.T) {
	reset, most := peak(t)
	bubble(t, func(t *testing.T, k *kafka) {
		producer, err := kgo.NewClient(append(k.options(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerBatchMaxBytes(512<<20), kgo.BrokerMaxWriteBytes(1<<30),
			kgo.MaxDecompressBatchBytes(1<<30))...)
		require.NoError(t, err)
		defer producer.Close()
		k.produce(&kgo.Record{Topic: "four", Partition: 1, Key: []byte("before")})
		require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "four", Partition: 1, Key: []byte("bomb"), Value: make([]byte, 2*maxBatchBytes)}).FirstErr())
		k.produce(&kgo.Record{Topic: "four", Partition: 1, Key: []byte("after")}, &kgo.Record{Topic: "four", Partition: 2, Key: []byte("other")})
		reset()
		before := heap()
		m := k.start(k.config("four"))
		k.until("the partition has stopped", func() bool { return m.Status().StoppedPartitions == 1 })
		k.until("the others go on", func() bool { return len(m.sink.all()) == 2 })
		stopped := ""
		for _, p := range m.Status().Partitions {
			stopped += p.Stopped
		}
		require.Contains(t, stopped, "four/1: the batch at offset 1 decompresses to more than 64 MiB")
		require.Contains(t, stopped, "--to-offset 2")
		grown := heap() - before
		t.Logf("a batch of %d MiB: %.1f MiB held, %.1f MiB at most on the way", 2*maxBatchBytes>>20, float64(grown)/(1<<20), float64(most())/(1<<20))
		require.Less(t, grown, int64(32<<20))
		require.Less(t, most(), int64(6*maxBatchBytes)) // the race detector makes it 5
	})
}
