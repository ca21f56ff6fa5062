package consumer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
)

// kafka is a cluster inside a synctest bubble: time passes only while everybody
// waits, so a test may let an hour go by, and never races with the clock.
type kafka struct {
	t       *testing.T
	network *kfake.VirtualNetwork
	cluster *kfake.Cluster
	client  *kgo.Client

	members []*member

	mu      sync.Mutex
	commits map[string][]int64 // accepted or not, as sent, by topic/partition
}

func bubble(t *testing.T, test func(t *testing.T, k *kafka), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &kafka{t: t, network: new(kfake.VirtualNetwork), commits: make(map[string][]int64)}
		opts := append([]kfake.Opt{
			kfake.ListenFn(k.network.Listen), kfake.NumBrokers(1),
			kfake.SeedTopics(1, "one", "dead"), kfake.SeedTopics(4, "four"),
			kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "200"}),
		}, opts...)
		cluster, err := kfake.NewCluster(opts...)
		require.NoError(t, err)
		k.cluster = cluster
		cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, p := range topic.Partitions {
					key := fmt.Sprintf("%x%s/%d", topic.TopicID[:2], topic.Topic, p.Partition)
					k.commits[key] = append(k.commits[key], p.Offset)
				}
			}
			return nil, nil, false
		})
		k.client, err = kgo.NewClient(append(k.options(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		require.NoError(t, err)
		defer func() {
			for _, m := range k.members { // that a failed test has left running
				m.cancel()
				<-m.ended
			}
			k.client.Close()
			cluster.Close()
			synctest.Wait()
		}()
		test(t, k)
	})
}

func (k *kafka) options() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(k.cluster.ListenAddrs()...), kgo.Dialer(k.network.DialContext)}
}

func (k *kafka) produce(records ...*kgo.Record) {
	k.t.Helper()
	require.NoError(k.t, k.client.ProduceSync(k.t.Context(), records...).FirstErr())
}

// fill produces n records to each partition; keys are partition:offset.
func (k *kafka) fill(topic string, partitions, n int) {
	k.t.Helper()
	var records []*kgo.Record
	for p := range partitions {
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "%d:%d", p, i), Value: []byte("payload")})
		}
	}
	k.produce(records...)
}

func (k *kafka) committed(topic string, partition int32) kadm.Offset {
	k.t.Helper()
	offsets, err := kadm.NewClient(k.client).FetchOffsets(k.t.Context(), "group")
	require.NoError(k.t, err)
	o, found := offsets.Lookup(topic, partition)
	if !found {
		return kadm.Offset{At: -1}
	}
	return o.Offset
}

// until lets time pass until the condition holds.
func (k *kafka) until(what string, holds func() bool) {
	k.t.Helper()
	for range 6000 {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	k.t.Fatalf("never: %s", what)
}

func (k *kafka) untilCommitted(topic string, partition int32, offset int64) {
	k.t.Helper()
	k.until(fmt.Sprintf("%s/%d committed at %d", topic, partition, offset), func() bool {
		return k.committed(topic, partition).At == offset
	})
}

// neverBackwards checks every commit that was ever sent.
func (k *kafka) neverBackwards() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, offsets := range k.commits {
		require.True(k.t, slices.IsSorted(offsets), "%s: %v", key, offsets)
	}
}

// member is a consumer under test with what it works with.
type member struct {
	*Consumer
	k      *kafka
	ledger *ledger.Ledger
	buffer *buffer.Buffer
	sink   *sink
	counts *counts
	log    *strings.Builder
	turns  atomic.Int64 // of the poll loop
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

type settings struct {
	Config
	Buffer   buffer.Config
	auto     bool // changes are released and done as they come
	mayAdmit func() bool
	options  []kgo.Opt
}

func (k *kafka) config(topics ...string) settings {
	c := DefaultConfig()
	c.Brokers, c.Topics, c.Group = k.cluster.ListenAddrs(), topics, "group"
	c.Intake.DeadLetterTopic = "dead"
	return settings{Config: c, Buffer: buffer.DefaultConfig()}
}

func (k *kafka) start(s settings) *member {
	k.t.Helper()
	m := &member{k: k, ledger: ledger.New(), ended: make(chan struct{}), counts: &counts{n: map[string]int64{}, gauges: map[string]float64{}}, log: new(strings.Builder)}
	m.buffer = buffer.New(s.Buffer, m.ledger)
	m.sink = &sink{auto: s.auto, buffer: m.buffer}
	c, err := New(s.Config, Deps{
		Logger:  slog.New(slog.NewTextHandler(&lockedWriter{w: m.log}, nil)),
		Metrics: m.counts, Sink: m.sink, Buffer: m.buffer, Ledger: m.ledger,
		MayAdmit: s.mayAdmit,
		PollTurn: func() { m.turns.Add(1) },
		Options:  append(s.options, kgo.Dialer(k.network.DialContext)),
	})
	require.NoError(k.t, err)
	m.Consumer = c
	ctx, cancel := context.WithCancel(k.t.Context())
	m.cancel = cancel
	k.members = append(k.members, m)
	go func() {
		defer close(m.ended)
		m.err = c.Run(ctx)
	}()
	return m
}

// stop ends the member the graceful way and returns how long it took.
func (m *member) stop() time.Duration {
	m.k.t.Helper()
	began := time.Now()
	m.cancel()
	<-m.ended
	require.NoError(m.k.t, m.err)
	return time.Since(began)
}

func (m *member) hasEnded() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

func (m *member) untilAssigned(n int) {
	m.k.t.Helper()
	m.k.until(fmt.Sprintf("%d partitions assigned", n), func() bool { return len(m.Status().Partitions) == n })
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// sink keeps what was submitted, as dispatch would.
type sink struct {
	buffer *buffer.Buffer

	mu      sync.Mutex
	auto    bool
	changes []buffer.Change
}

func (s *sink) Submit(c buffer.Change) {
	s.mu.Lock()
	s.changes = append(s.changes, c)
	auto := s.auto
	s.mu.Unlock()
	if auto {
		s.buffer.Release(c)
		c.Assignment.Done(c.Position)
	}
}

func (s *sink) all() []buffer.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

func (s *sink) accounts() []string {
	var accounts []string
	for _, c := range s.all() {
		accounts = append(accounts, c.Account)
	}
	return accounts
}

// counts is telemetry that can be asked: sums of counts, last values of gauges.
type counts struct {
	mu     sync.Mutex
	n      map[string]int64
	gauges map[string]float64
}

func (c *counts) Count(name string, n int64, _ ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name] += n
}

func (c *counts) Gauge(name string, v float64, _ ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gauges[name] = v
}

func (c *counts) Timing(string, time.Duration, ...string) {}

func (c *counts) get(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *counts) gauge(name string) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gauges[name]
}
