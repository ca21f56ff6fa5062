package kafkatest

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fixture is one test's topic and group, and what became of its records.
type fixture struct {
	t      *testing.T
	seeds  []string
	topic  string
	group  string
	client *kgo.Client // produces; partitions as the records say
	admin  *kadm.Client
	// options are added to those of every member.
	options []kgo.Opt
	// staleReads says that the group's offsets may seem to go backwards: right
	// after it has taken over, a coordinator of Apache Kafka answers from before
	// the commits of which it does not know yet that its followers have them.
	// The test then reads the commits off the coordinators' log.
	staleReads bool

	members []*member

	mu        sync.Mutex
	id        contract.TopicID // of the topic whose offsets count
	produced  map[int32][]int64
	completed map[int32]map[int64]bool
	committed map[int32]map[int64]bool // every offset that the watcher has met
	last      map[int32]int64
	faults    []string // what the watcher has found
}

// newFixture creates a topic and begins to watch.
func newFixture(t *testing.T, partitions int, configs ...string) *fixture {
	t.Helper()
	return newFixtureAt(t, []string{on.plain}, partitions, configs...)
}

// newFixtureAt does so on the brokers at seeds, on all of which the topic is.
func newFixtureAt(t *testing.T, seeds []string, partitions int, configs ...string) *fixture {
	t.Helper()
	name := fmt.Sprintf("%.100s-%s", t.Name(), strconv.FormatInt(time.Now().UnixNano(), 36))
	name = regexp.MustCompile(`[^a-zA-Z0-9._-]`).ReplaceAllString(name, ".")
	f := &fixture{t: t, seeds: seeds, topic: name, group: "group-" + name}
	f.forget()
	var err error
	f.client, err = kgo.NewClient(kgo.SeedBrokers(f.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RecordDeliveryTimeout(time.Minute))
	require.NoError(t, err)
	f.admin = kadm.NewClient(f.client)
	f.create(partitions, configs...)

	watching, stop := context.WithCancel(context.Background())
	var watcher sync.WaitGroup
	watcher.Go(func() { f.watch(watching) })
	t.Cleanup(func() {
		for _, m := range f.members {
			m.cancel()
		}
		for _, m := range f.members {
			<-m.ended
			m.dialer.close()
		}
		stop()
		watcher.Wait()
		f.client.Close()
		for _, fault := range f.faults {
			t.Error(fault)
		}
		if t.Failed() {
			for i, m := range f.members {
				t.Logf("member %d ended with %v; its log:\n%s", i, m.err, m.logged())
			}
		}
	})
	return f
}

// create creates the topic; configs are pairs of name and value.
func (f *fixture) create(partitions int, configs ...string) {
	f.t.Helper()
	values := make(map[string]*string)
	for i := 0; i+1 < len(configs); i += 2 {
		values[configs[i]] = &configs[i+1]
	}
	_, err := f.admin.CreateTopic(f.t.Context(), int32(partitions), int16(len(f.seeds)), values, f.topic)
	require.NoError(f.t, err)
	f.until("topic exists", func() bool {
		details, err := f.admin.ListTopics(f.t.Context(), f.topic)
		if err != nil || !details.Has(f.topic) || len(details[f.topic].Partitions) != partitions {
			return false
		}
		f.mu.Lock()
		f.id = contract.TopicID(details[f.topic].ID)
		f.mu.Unlock()
		return true
	})
}

// forget forgets what was produced and committed: the topic is another now.
func (f *fixture) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.produced = make(map[int32][]int64)
	f.completed = make(map[int32]map[int64]bool)
	f.committed = make(map[int32]map[int64]bool)
	f.last = make(map[int32]int64)
}

func (f *fixture) produce(records ...*kgo.Record) {
	f.t.Helper()
	for _, r := range records {
		r.Topic = f.topic
	}
	require.NoError(f.t, f.client.ProduceSync(f.t.Context(), records...).FirstErr())
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range records {
		f.produced[r.Partition] = append(f.produced[r.Partition], r.Offset)
	}
}

// fill produces n records to each partition, keyed partition:number.
func (f *fixture) fill(partitions, n int) {
	f.t.Helper()
	var records []*kgo.Record
	for p := range partitions {
		for i := range n {
			records = append(records, &kgo.Record{Partition: int32(p), Key: fmt.Appendf(nil, "%d:%d", p, i), Value: []byte("payload")})
		}
	}
	f.produce(records...)
}

// feed produces a record to each partition, again and again, until the returned
// function is called.
func (f *fixture) feed(partitions int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var feeding sync.WaitGroup
	feeding.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for round := 0; ; round++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			var records []*kgo.Record
			for p := range partitions {
				records = append(records, &kgo.Record{Topic: f.topic, Partition: int32(p), Key: fmt.Appendf(nil, "fed-%d:%d", p, round)})
			}
			err := f.client.ProduceSync(context.Background(), records...).FirstErr()
			f.mu.Lock()
			if err != nil {
				f.faults = append(f.faults, "produce: "+err.Error())
			}
			for _, r := range records {
				f.produced[r.Partition] = append(f.produced[r.Partition], r.Offset)
			}
			f.mu.Unlock()
		}
	})
	return func() { cancel(); feeding.Wait() }
}

// complete completes a change, for whoever owns it.
func (f *fixture) complete(changes ...buffer.Change) {
	f.mu.Lock()
	for _, c := range changes {
		if c.Source.TopicID != f.id {
			continue
		}
		if f.completed[c.Source.Partition] == nil {
			f.completed[c.Source.Partition] = make(map[int64]bool)
		}
		f.completed[c.Source.Partition][c.Position.Offset] = true
	}
	f.mu.Unlock()
	for _, c := range changes {
		c.Assignment.Done(c.Position)
	}
}

// ends returns the offset of the last record produced so far, by partition.
func (f *fixture) ends() map[int32]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := make(map[int32]int64)
	for p, produced := range f.produced {
		ends[p] = produced[len(produced)-1]
	}
	return ends
}

// offsets returns the group's commits on the topic; none if the broker does not
// answer.
func (f *fixture) offsets() map[int32]kadm.OffsetResponse {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	all, err := f.admin.FetchOffsets(ctx, f.group)
	if err != nil {
		return nil
	}
	return all[f.topic]
}

func (f *fixture) committedAt(partition int32) int64 {
	if o, found := f.offsets()[partition]; found {
		return o.At
	}
	return -1
}

// watch checks, again and again, that no commit goes backwards, and that all
// that was produced below one was completed.
func (f *fixture) watch(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.observe(f.offsets())
		case <-ctx.Done():
			f.observe(f.offsets())
			return
		}
	}
}

func (f *fixture) observe(offsets map[int32]kadm.OffsetResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) > 10 {
		return
	}
	for p, o := range offsets {
		if !ours(o, f.id) {
			continue // of the topic that was there before
		}
		if o.At < f.last[p] && !f.staleReads {
			f.faults = append(f.faults, fmt.Sprintf("partition %d: committed %d after %d", p, o.At, f.last[p]))
		}
		f.last[p] = o.At
		if f.committed[p] == nil {
			f.committed[p] = make(map[int64]bool)
		}
		f.committed[p][o.At] = true
		for _, offset := range f.produced[p] {
			if offset < o.At && !f.completed[p][offset] {
				f.faults = append(f.faults, fmt.Sprintf("partition %d: committed %d, but the record at %d was not completed", p, o.At, offset))
				break
			}
		}
	}
}

// until waits until the condition holds.
func (f *fixture) until(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			f.t.Fatalf("never: %s; committed %v", what, f.offsets())
		}
		<-tick.C
	}
}

func (f *fixture) untilCommitted(partition int32, offset int64) {
	f.t.Helper()
	f.until(fmt.Sprintf("partition %d committed at %d", partition, offset), func() bool { return f.committedAt(partition) == offset })
}

// untilAllCommitted waits until the group has committed every partition's last
// record.
func (f *fixture) untilAllCommitted() {
	f.t.Helper()
	f.untilPassed("everything committed", f.ends)
}

// untilPassed waits until the group has committed beyond the offsets.
func (f *fixture) untilPassed(what string, ends func() map[int32]int64) {
	f.t.Helper()
	f.until(what, func() bool {
		offsets := f.offsets()
		for p, end := range ends() {
			if offsets[p].At <= end {
				return false
			}
		}
		return true
	})
}
