package kafkatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// existing returns the offsets of partition 0 that a reader of committed records
// meets, control records included, and the last stable offset.
func (f *fixture) existing() (map[int64]bool, int64) {
	f.t.Helper()
	ends, err := f.admin.ListCommittedOffsets(f.t.Context(), f.topic)
	require.NoError(f.t, err)
	end, _ := ends.Lookup(f.topic, 0)
	cl, err := kgo.NewClient(kgo.SeedBrokers(on.plain), kgo.ConsumeTopics(f.topic), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(f.t, err)
	defer cl.Close()
	met := make(map[int64]bool)
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	for !met[end.Offset-1] {
		fetches := cl.PollFetches(ctx)
		require.NoError(f.t, fetches.Err(), "waiting for %d", end.Offset-1)
		fetches.EachRecord(func(r *kgo.Record) { met[r.Offset] = true })
	}
	return met, end.Offset
}

// onlySeenIsCommitted checks that whatever was committed follows a record that
// a member has seen; control is what may be there beside changes.
func (f *fixture) onlySeenIsCommitted(control map[int64]bool) {
	f.t.Helper()
	met := maps.Clone(control)
	for _, m := range f.members {
		for _, c := range m.sink.all() {
			met[c.Position.Offset] = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for o := range f.committed[0] {
		require.True(f.t, o == 0 || met[o-1], "%d was committed, and nobody can have read %d", o, o-1)
	}
}

// Committed, aborted and open transactions, one after the other: each ends in a
// control record, and aborted ones leave a gap.
func TestTransactionsLetLagReachZero(t *testing.T) {
	f := newFixture(t, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(on.plain), kgo.TransactionalID(f.topic), kgo.DefaultProduceTopic(f.topic))
	require.NoError(t, err)
	defer cl.Close()
	n := 0
	begin := func(records int) {
		require.NoError(t, cl.BeginTransaction())
		for range records {
			require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Key: fmt.Appendf(nil, "k%d", n)}).FirstErr())
			n++
		}
	}
	end := func(commit kgo.TransactionEndTry) { require.NoError(t, cl.EndTransaction(t.Context(), commit)) }
	a := f.start(f.config())
	defer a.work()()
	begin(2)
	end(kgo.TryCommit)
	begin(3)
	end(kgo.TryAbort)
	begin(1)
	end(kgo.TryCommit)
	begin(2)
	end(kgo.TryAbort)
	caughtUp := func() {
		t.Helper()
		f.until("lag 0", func() bool {
			s := a.Status()
			return len(s.Partitions) == 1 && s.Partitions[0].EndOffset == 12 && s.Lag == 0 && f.committedAt(0) == 12
		})
	}
	// kgo does not hand out what was aborted last, so neither its control record:
	// that there is one is part of what is tested.
	caughtUp()
	require.Equal(t, []string{"k0", "k1", "k5"}, a.sink.accounts())

	begin(2) // open: not over, so not to be passed, nor lag
	f.fill(1, 3)
	f.mu.Lock()
	require.EqualValues(t, 14, f.produced[0][0])
	f.mu.Unlock()
	time.Sleep(time.Second)
	caughtUp()
	end(kgo.TryCommit)
	f.untilCommitted(0, 18)
	require.Equal(t, []string{"k0", "k1", "k5", "k8", "k9", "0:0", "0:1", "0:2"}, a.sink.accounts())
	existing, _ := f.existing()
	f.onlySeenIsCommitted(existing)
	a.stop()
}

// Compaction leaves gaps, also where the next owner starts. The first record
// stays: where compaction removes it, kfake moves the start of the log, and
// Apache Kafka does not.
func TestCompactionLeavesGaps(t *testing.T) {
	f := newFixture(t, 1, "segment.ms", "1")
	const keys = 5
	f.produce(&kgo.Record{Key: []byte("first")})
	for round := range 20 {
		var records []*kgo.Record
		for k := range keys {
			records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "k%d", k), Value: fmt.Appendf(nil, "%d", round)})
		}
		f.produce(records...)
	}
	a := f.start(f.config())
	f.complete(a.untilSubmitted(1 + 20*keys)[:3]...)
	f.untilCommitted(0, 3)
	a.stop()

	var configs []kadm.AlterConfig
	for name, value := range map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "1"} {
		configs = append(configs, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	_, err := f.admin.AlterTopicConfigs(t.Context(), configs, f.topic)
	require.NoError(t, err)
	var met map[int64]bool
	var end int64
	f.until("compacted", func() bool {
		if !on.apache {
			on.cluster.Compact()
		}
		f.produce(&kgo.Record{Key: fmt.Appendf(nil, "last%d", end)}) // the active segment is not compacted: roll it
		met, end = f.existing()
		return int64(len(met)) < end-70 && !met[3]
	})
	f.mu.Lock()
	f.produced[0] = slices.DeleteFunc(f.produced[0], func(o int64) bool { return !met[o] }) // needs no completion
	f.mu.Unlock()
	kept := len(slices.DeleteFunc(slices.Clone(f.produced[0]), func(o int64) bool { return o >= 3 })) // done by a
	t.Logf("of %d offsets %d are left", end, len(met))

	b := f.start(f.config())
	f.until("lag 0", func() bool {
		f.complete(b.sink.take()...)
		s := b.Status()
		return len(s.Partitions) == 1 && s.Partitions[0].EndOffset == end && s.Lag == 0
	})
	f.untilCommitted(0, end)
	require.Len(t, b.sink.all(), len(f.produced[0])-kept)
	f.onlySeenIsCommitted(map[int64]bool{})
	b.stop()
}
