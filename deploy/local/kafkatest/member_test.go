package kafkatest

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func ours(o kadm.OffsetResponse, id contract.TopicID) bool {
	m, err := ledger.Decode(o.Metadata)
	return err == nil && m.TopicID == id
}

// member is a consumer under test with what it works with.
type member struct {
	*consumer.Consumer
	f      *fixture
	ledger *ledger.Ledger
	buffer *buffer.Buffer
	sink   *sink
	counts *counts
	dialer *dialer
	cancel context.CancelFunc
	ended  chan struct{}
	err    error

	logMu sync.Mutex
	log   bytes.Buffer
}

func (m *member) Write(p []byte) (int, error) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return m.log.Write(p)
}

func (m *member) logged() string {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return m.log.String()
}

// config returns settings that act at once and notice a dead member soon.
func (f *fixture) config() consumer.Config {
	c := consumer.DefaultConfig()
	c.Brokers, c.Topics, c.Group = f.seeds, []string{f.topic}, f.group
	c.Intake.BadRecord, c.Intake.DeadLetterTopic = intake.BadSkip, ""
	c.SessionTimeout, c.CommitInterval, c.StartTimeout = 3*time.Second, 50*time.Millisecond, 5*time.Second
	return c
}

func (f *fixture) start(cfg consumer.Config) *member {
	f.t.Helper()
	m := f.member(cfg, kgo.MetadataMinAge(200*time.Millisecond))
	m.run()
	return m
}

// member prepares a member that run starts.
func (f *fixture) member(cfg consumer.Config, options ...kgo.Opt) *member {
	f.t.Helper()
	m := &member{f: f, ledger: ledger.New(), counts: &counts{n: map[string]int64{}}, dialer: &dialer{}, ended: make(chan struct{})}
	m.buffer = buffer.New(buffer.Config{Records: 20_000, Bytes: 64 << 20, MaxUncommitted: 100_000}, m.ledger)
	m.sink = &sink{buffer: m.buffer}
	options = append(options, f.options...)
	if !cfg.TLS {
		options = append(options, kgo.Dialer(m.dialer.dial))
	}
	c, err := consumer.New(cfg, consumer.Deps{
		Logger: slog.New(slog.NewTextHandler(m, nil)), Metrics: m.counts,
		Sink: m.sink, Buffer: m.buffer, Ledger: m.ledger, Options: options,
	})
	require.NoError(f.t, err)
	m.Consumer = c
	return m
}

func (m *member) run() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.f.members = append(m.f.members, m)
	go func() {
		defer close(m.ended)
		m.err = m.Run(ctx)
	}()
}

// stop ends the member in order and returns how long it took.
func (m *member) stop() time.Duration {
	m.f.t.Helper()
	began := time.Now()
	m.cancel()
	<-m.ended
	require.NoError(m.f.t, m.err)
	return time.Since(began)
}

// crash ends the member as a power cut would: nothing it says is heard any more.
func (m *member) crash() {
	m.dialer.cut()
	m.cancel()
}

func (m *member) partitions() []int32 {
	var ps []int32
	for _, p := range m.Status().Partitions {
		ps = append(ps, p.Partition)
	}
	return ps
}

func (m *member) untilAssigned(n int) {
	m.f.t.Helper()
	m.f.until("assigned", func() bool { return len(m.partitions()) == n })
}

func (m *member) untilSubmitted(n int) []buffer.Change {
	m.f.t.Helper()
	m.f.until("submitted", func() bool { return len(m.sink.all()) >= n })
	return m.sink.all()
}

// untilFlow completes, on all members, what they have until everything that was
// produced is committed.
func (f *fixture) untilFlow(members ...*member) {
	f.t.Helper()
	f.untilPassed("completed and committed", func() map[int32]int64 {
		for _, m := range members {
			f.complete(m.sink.take()...)
		}
		return f.ends()
	})
}

// work completes changes as they come, out of order and a moment late, until
// the returned function is called.
func (m *member) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	working.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var waiting []buffer.Change
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			waiting = append(waiting, m.sink.take()...)
			random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
			n := (len(waiting) + 1) / 2
			m.f.complete(waiting[:n]...)
			waiting = slices.Clone(waiting[n:])
		}
	})
	return func() { cancel(); working.Wait() }
}

// sink keeps what was submitted, as dispatch would, and releases it at once.
type sink struct {
	buffer *buffer.Buffer

	mu      sync.Mutex
	changes []buffer.Change
	taken   int
}

func (s *sink) Submit(c buffer.Change) {
	s.mu.Lock()
	s.changes = append(s.changes, c)
	s.mu.Unlock()
	s.buffer.Release(c)
}

func (s *sink) all() []buffer.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

// take returns what was submitted since it was called last.
func (s *sink) take() []buffer.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := slices.Clone(s.changes[s.taken:])
	s.taken = len(s.changes)
	return fresh
}

func (s *sink) accounts() []string {
	var accounts []string
	for _, c := range s.all() {
		accounts = append(accounts, c.Account)
	}
	return accounts
}

// counts is telemetry that can be asked.
type counts struct {
	mu sync.Mutex
	n  map[string]int64
}

func (c *counts) Count(name string, n int64, _ ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[name] += n
}
func (c *counts) Gauge(string, float64, ...string)        {}
func (c *counts) Timing(string, time.Duration, ...string) {}

func (c *counts) get(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// dialer is a network that can be cut.
type dialer struct {
	mu     sync.Mutex
	down   bool
	opened []net.Conn
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		_ = conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: syscall.ECONNREFUSED}
	}
	d.opened = append(d.opened, conn)
	return conn, nil
}

func (d *dialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = true
	for _, conn := range d.opened {
		_ = conn.Close()
	}
	d.opened = nil
}

func (d *dialer) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = false
}

func (d *dialer) close() { d.cut() }
