package telemetry_test

import (
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// agent is a DogStatsD listener that keeps the lines it receives.
type agent struct{ conn net.PacketConn }

func startAgent(t *testing.T) *agent {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	host, port, err := net.SplitHostPort(conn.LocalAddr().String())
	require.NoError(t, err)
	t.Setenv("DD_AGENT_HOST", host)
	t.Setenv("DD_DOGSTATSD_PORT", port)
	t.Setenv("DD_ENV", "test")
	return &agent{conn}
}

// lines reads until a line matches every pattern, and returns the matches.
func (a *agent) wait(t *testing.T, patterns ...string) []string {
	t.Helper()
	found := make([]string, len(patterns))
	require.NoError(t, a.conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := a.conn.ReadFrom(buffer)
		require.NoError(t, err, "found so far: %q of %q", found, patterns)
		missing := false
		for i, pattern := range patterns {
			for line := range strings.SplitSeq(strings.TrimSpace(string(buffer[:n])), "\n") {
				if regexp.MustCompile(pattern).MatchString(line) {
					found[i] = line
				}
			}
			missing = missing || found[i] == ""
		}
		if !missing {
			return found
		}
	}
}

func TestMetricsReachTheAgent(t *testing.T) {
	agent := startAgent(t)
	metrics, closeMetrics, err := telemetry.Open("crm", "1.2.3", slog.New(slog.DiscardHandler))
	require.NoError(t, err)

	for range 3 {
		metrics.Count("sync.calls", 2)
	}
	metrics.Gauge("bridge.uncommitted", 17)
	for range 2 { // extended aggregation sends several values in one line
		metrics.Timing("sync.latency", 1500*time.Millisecond, "outcome:written")
	}
	temporal := telemetry.Temporal(metrics).WithTags(map[string]string{"workflow_type": "AccountSync"})
	temporal.Counter("temporal_workflow_completed").Inc(4)
	temporal.Counter("sync.follow_ups").Inc(5)
	temporal.Timer("temporal_request_latency").Record(time.Second)
	temporal.Gauge("temporal_sticky_cache_size").Update(9)
	go func() { _ = closeMetrics() }() // flushes

	const tags = `.*pipeline:crm.*version:1\.2\.3.*`
	for _, line := range agent.wait(t,
		`^quiesce\.sync\.calls:6\|c\|#`+tags,
		`^quiesce\.bridge\.uncommitted:17\|g\|#`+tags,
		`^quiesce\.sync\.latency:1\.5:1\.5\|d\|#`+tags+`outcome:written`,
		`^quiesce\.temporal\.workflow_completed:4\|c\|#.*workflow_type:AccountSync`,
		`^quiesce\.sync\.follow_ups:5\|c\|#`,
		`^quiesce\.temporal\.request_latency:1\|d\|#`,
		`^quiesce\.temporal\.sticky_cache_size:9\|g\|#`,
	) {
		require.Contains(t, line, "env:test")
	}
}

func TestNoAgentNoMetrics(t *testing.T) {
	t.Setenv("DD_AGENT_HOST", "")
	t.Setenv("DD_DOGSTATSD_URL", "")
	metrics, closeMetrics, err := telemetry.Open("crm", "dev", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	metrics.Count("sync.calls", 2)
	require.Equal(t, map[string]int64{"sync.calls": 2}, metrics.Totals().Counts)
	require.NoError(t, closeMetrics())
}
