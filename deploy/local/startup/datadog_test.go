package startup

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/manifests"
)

// TestWatchedMetricsArrive: what the monitors watch comes from both processes at
// an agent, under those names, with a change or two and nothing wrong. Of dead
// letters there are none then.
func TestWatchedMetricsArrive(t *testing.T) {
	t.Parallel()
	monitors, err := manifests.Monitors(world.Root)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range monitors {
		for _, u := range manifests.Uses(m.Query) {
			missing["quiesce."+u.Metric] = u.Metric != "bridge.dead_letters"
		}
	}
	agent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	_, port, _ := net.SplitHostPort(agent.LocalAddr().String())
	brokers, _ := cluster(t)
	env := append(append(usual(), onCluster(brokers)...), "DD_AGENT_HOST=127.0.0.1", "DD_DOGSTATSD_PORT="+port)
	worker, bridge := start(t, "worker", env), start(t, "bridge", env)
	worker.awaitReady()
	bridge.awaitReady()
	produce(t, brokers, "watched")

	if err := agent.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 1<<16)
	for {
		left := []string{}
		for name, wanted := range missing {
			if wanted {
				left = append(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		n, _, err := agent.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("%v; not arrived: %q", err, left)
		}
		for line := range strings.SplitSeq(string(buffer[:n]), "\n") {
			name, _, _ := strings.Cut(line, ":")
			delete(missing, name)
		}
	}
}
