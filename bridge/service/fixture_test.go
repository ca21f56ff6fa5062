package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// world is Kafka and Temporal around bridges. In a bubble, time passes only
// while everybody waits; outside, a goroutine may hang with a lock as well.
type world struct {
	t        *testing.T
	cluster  *kfake.Cluster
	options  []kgo.Opt
	kafka    *kgo.Client
	temporal *temporal
	bridges  []*member
	next     int
}

const partitions = 4

// inBubble runs test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := new(kfake.VirtualNetwork)
		w := newWorld(t, []kfake.Opt{kfake.ListenFn(network.Listen)}, kgo.Dialer(network.DialContext))
		defer func() { w.close(); synctest.Wait() }()
		test(t, w)
	})
}

// newWorld starts a cluster with the topics changes and dead.
func newWorld(t *testing.T, cluster []kfake.Opt, client ...kgo.Opt) *world {
	t.Helper()
	w := &world{t: t, temporal: newTemporal()}
	var err error
	w.cluster, err = kfake.NewCluster(append(cluster, kfake.NumBrokers(1),
		kfake.SeedTopics(partitions, "changes"), kfake.SeedTopics(1, "dead"),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "200"}))...)
	require.NoError(t, err)
	w.options = client
	w.kafka, err = kgo.NewClient(append(client, kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(t, err)
	return w
}

func (w *world) close() {
	for _, m := range w.bridges {
		m.cancel()
		<-m.ended
	}
	w.kafka.Close()
	w.cluster.Close()
}

// produce produces n changes, each of another account, spread over the
// partitions.
func (w *world) produce(n int) {
	w.t.Helper()
	var records []*kgo.Record
	for range n {
		records = append(records, &kgo.Record{Topic: "changes", Partition: int32(w.next % partitions), Key: fmt.Appendf(nil, "account-%d", w.next)})
		w.next++
	}
	require.NoError(w.t, w.kafka.ProduceSync(context.Background(), records...).FirstErr())
}

// refuseLetters has the dead-letter topic refuse everything for as long as the
// flag holds.
func (w *world) refuseLetters(why *kerr.Error) *atomic.Bool {
	var refused atomic.Bool
	refused.Store(true)
	w.cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		if !refused.Load() || produce.Topics[0].Topic != "dead" && produce.Topics[0].TopicID != w.cluster.TopicInfo("dead").TopicID {
			return nil, nil, false
		}
		response := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produce.Topics {
			answer := kmsg.NewProduceResponseTopic()
			answer.Topic, answer.TopicID = topic.Topic, topic.TopicID
			for _, partition := range topic.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = partition.Partition, why.Code
				answer.Partitions = append(answer.Partitions, p)
			}
			response.Topics = append(response.Topics, answer)
		}
		return response, nil, true
	})
	return &refused
}

// committed is what the group has committed, summed over partitions.
func (w *world) committed() (n int64) {
	w.t.Helper()
	offsets, err := kadm.NewClient(w.kafka).FetchOffsets(context.Background(), "crm")
	require.NoError(w.t, err)
	for _, o := range offsets["changes"] {
		n += max(0, o.At)
	}
	return n
}

// until waits until the condition holds, for two minutes.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for range 6000 {
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatalf("never: %s", what)
}

// member is one bridge.
type member struct {
	*service.Bridge
	config service.Config
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
	took   time.Time
}

func (w *world) config() service.Config {
	c := service.DefaultConfig()
	c.Common.Pipeline, c.Common.StatusAddr, c.Common.ShutdownGrace = "crm", "", 15*time.Second
	c.Kafka.Brokers, c.Kafka.Topics = w.cluster.ListenAddrs(), []string{"changes"}
	c.Kafka.Intake.DeadLetterTopic = "dead"
	return c
}

// start starts a bridge. Metrics may be nil; a hook of its own may hang.
func (w *world) start(c service.Config, metrics telemetry.Metrics, logger *slog.Logger) *member {
	w.t.Helper()
	if metrics == nil {
		metrics = telemetry.Discard
	}
	if logger == nil {
		logger = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	}
	require.NoError(w.t, c.Validate())
	b, err := service.New(c, service.Deps{
		Temporal: sdk{service: w.temporal}, Namespace: "default", Identity: fmt.Sprintf("bridge-%d", len(w.bridges)),
		Logger: logger, Metrics: metrics, Kafka: w.options,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Bridge: b, config: c, cancel: cancel, ended: make(chan struct{})}
	w.bridges = append(w.bridges, m)
	go func() {
		m.err = b.Run(ctx)
		m.took = time.Now()
		close(m.ended)
	}()
	return m
}

func (m *member) owned() int { return len(m.Status().Partitions) }

// hooked are metrics that call a hook with each name.
type hooked struct {
	mu   sync.Mutex
	hook func(name string)
}

func (h *hooked) set(hook func(name string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hooked) call(name string) {
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	if hook != nil {
		hook(name)
	}
}

func (h *hooked) Count(name string, _ int64, _ ...string)          { h.call(name) }
func (h *hooked) Gauge(name string, _ float64, _ ...string)        { h.call(name) }
func (h *hooked) Timing(name string, _ time.Duration, _ ...string) { h.call(name) }

// freeAddress returns a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
