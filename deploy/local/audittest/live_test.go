package audittest

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
)

var pairs = flag.Int("pairs", 0, "alternating pairs of TestReplayLeavesLiveChangesAlone, some four minutes each; 0 skips it")

// TestReplayLeavesLiveChangesAlone measures the staleness of live changes, three
// a second under a budget of 15 calls a second and the default settle times,
// while a replay of 1,000 accounts runs and while none does. The median of the
// pairs' ratios of the 99th percentiles stays within 10%.
func TestReplayLeavesLiveChangesAlone(t *testing.T) {
	if *pairs == 0 {
		t.Skip("takes minutes; run with -pairs 3")
	}
	var ratios []float64
	for range *pairs {
		without := staleness(t, false)
		with := staleness(t, true)
		ratios = append(ratios, with.Seconds()/without.Seconds())
		t.Logf("p99 without %s, with %s: ratio %.3f", without, with, ratios[len(ratios)-1])
	}
	slices.Sort(ratios)
	require.LessOrEqual(t, ratios[len(ratios)/2], 1.10)
}

func staleness(t *testing.T, replaying bool) time.Duration {
	p := newPipeline(t, "UPSTREAM_RPS=15", "SETTLE_TIME=20s", "SETTLE_DELAY=30s", "MAX_CLOCK_SKEW=1s", "PARK_AFTER=5", "HEARTBEAT_TIMEOUT=10s")
	worker, bridge := p.run("worker"), p.run("bridge")
	defer bridge.Kill()          //nolint:errcheck // it is ended by the test's own clean-up as well
	defer worker.Kill()          //nolint:errcheck
	time.Sleep(16 * time.Second) // a new budget grants nothing before
	traffic := load.New(load.Config{Accounts: 300, Rate: 3, Seed: 7}, p.upstream, p.kafka, p.topic)
	began := time.Now()
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	go func() { ended <- traffic.Run(ctx) }()
	if replaying {
		list := ""
		for i := range 1000 {
			list += fmt.Sprintf("replayed-%04d,", i)
		}
		p.command("bridge", "replay", "--accounts", list[:len(list)-1], "--reason", "measure", "--id", "measure", "--detach")
	}
	require.NoError(t, <-ended)
	if replaying {
		v := p.show("measure")
		t.Logf("replay after %s: %s, %+v", time.Since(began).Round(time.Second), v.Status, v.Progress.Counts)
	}
	p.committed()
	syncs, err := check.ReadSyncs(t.Context(), p.spanner)
	require.NoError(t, err)
	_, p99 := check.Staleness(syncs)
	require.Positive(t, p99)
	return p99
}
