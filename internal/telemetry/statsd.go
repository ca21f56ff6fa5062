package telemetry

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
	"go.temporal.io/sdk/client"
)

// Statsd sends metrics to a Datadog agent. Where the agent is, and the tags env,
// service and version, come from the variables that Datadog's own clients read:
// DD_AGENT_HOST, DD_DOGSTATSD_PORT, DD_DOGSTATSD_URL, DD_ENV, DD_SERVICE,
// DD_VERSION, DD_ENTITY_ID.
type Statsd struct {
	client *statsd.Client
}

// Open returns a tally of metrics that go to the agent which the environment
// names, and what closes them; where it names none they are tallied only. An
// agent that is not there yet is no error: sending never blocks, and packets that
// are lost are counted in [Totals] and logged at most once a minute.
func Open(pipeline, version string, logger *slog.Logger) (*Tally, func() error, error) {
	if os.Getenv("DD_AGENT_HOST") == "" && os.Getenv("DD_DOGSTATSD_URL") == "" {
		logger.Info("metrics stay on the status page; set DD_AGENT_HOST or DD_DOGSTATSD_URL to send them to Datadog")
		return NewTally(Discard), func() error { return nil }, nil
	}
	lost := &losses{logger: logger, interval: time.Minute}
	c, err := statsd.New("",
		statsd.WithNamespace("quiesce."),
		statsd.WithTags([]string{"pipeline:" + pipeline, "version:" + version}),
		statsd.WithExtendedClientSideAggregation(),
		statsd.WithErrorHandler(lost.add),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: correct it, or unset it to send no metrics: %w", agent(), err)
	}
	tally := NewTally(&Statsd{client: c})
	tally.lost = lost
	return tally, c.Close, nil
}

// agent names the setting that says where the agent is, with its value.
func agent() string {
	if url := os.Getenv("DD_DOGSTATSD_URL"); url != "" {
		return "DD_DOGSTATSD_URL=" + url
	}
	return "DD_AGENT_HOST=" + os.Getenv("DD_AGENT_HOST")
}

// losses are the packets that did not get to the agent. It logs the first and
// then one per interval: an agent that is down fails every flush.
type losses struct {
	logger   *slog.Logger
	interval time.Duration

	mu      sync.Mutex
	packets int64
	next    time.Time // when the log says so again
}

func (l *losses) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.packets++
	if now := time.Now(); now.After(l.next) {
		l.next = now.Add(l.interval)
		l.logger.Warn("metrics are not reaching the agent", "agent", agent(), "lost_packets", l.packets, "error", err)
	}
}

func (l *losses) count() int64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.packets
}

// Count implements [Metrics].
func (s *Statsd) Count(name string, n int64, tags ...string) { _ = s.client.Count(name, n, tags, 1) }

// Gauge implements [Metrics].
func (s *Statsd) Gauge(name string, value float64, tags ...string) {
	_ = s.client.Gauge(name, value, tags, 1)
}

// Timing implements [Metrics]. It is sent as a distribution, in seconds, so that
// percentiles hold over the whole fleet.
func (s *Statsd) Timing(name string, d time.Duration, tags ...string) {
	_ = s.client.Distribution(name, d.Seconds(), tags, 1)
}

// Temporal returns a handler through which the Temporal SDK reports to m. The
// SDK's own metrics lose their prefix "temporal_" and appear under "temporal.";
// those that workflow code counts keep their names.
func Temporal(m Metrics) client.MetricsHandler { return handler{metrics: m} }

type handler struct {
	metrics Metrics
	tags    []string
}

func (h handler) WithTags(tags map[string]string) client.MetricsHandler {
	joined := make([]string, len(h.tags), len(h.tags)+len(tags))
	copy(joined, h.tags)
	for key, value := range tags {
		joined = append(joined, key+":"+value)
	}
	return handler{metrics: h.metrics, tags: joined}
}

func (h handler) Counter(name string) client.MetricsCounter {
	return counter(func(n int64) { h.metrics.Count(rename(name), n, h.tags...) })
}

func (h handler) Gauge(name string) client.MetricsGauge {
	return gauge(func(value float64) { h.metrics.Gauge(rename(name), value, h.tags...) })
}

func (h handler) Timer(name string) client.MetricsTimer {
	return timer(func(d time.Duration) { h.metrics.Timing(rename(name), d, h.tags...) })
}

func rename(name string) string {
	if own, ok := strings.CutPrefix(name, "temporal_"); ok {
		return "temporal." + own
	}
	return name
}

type (
	counter func(int64)
	gauge   func(float64)
	timer   func(time.Duration)
)

func (c counter) Inc(n int64)          { c(n) }
func (g gauge) Update(value float64)   { g(value) }
func (t timer) Record(d time.Duration) { t(d) }
