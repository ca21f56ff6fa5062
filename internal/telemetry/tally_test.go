package telemetry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/telemetry"
)

func TestTallyKeepsWhatItPassesOn(t *testing.T) {
	inner := telemetry.NewTally(telemetry.Discard)
	tally := telemetry.NewTally(inner)
	tally.Count("sync.outcomes", 2, "outcome:written")
	tally.Count("sync.outcomes", 3, "class:500", "outcome:failed")
	tally.Count("temporal.request", 9)
	tally.Gauge("budget.limit", 50)
	tally.Gauge("budget.limit", 25)
	tally.Gauge("bridge.watermark_lag", 7, "partition:1")
	for i := range 1000 { // only the latest 512 count for percentiles
		tally.Timing("sync.staleness", time.Duration(i+1)*time.Second, "outcome:written")
	}

	totals := tally.Totals()
	require.Equal(t, map[string]int64{"sync.outcomes": 5, "sync.outcomes{written}": 2, "sync.outcomes{failed}": 3}, totals.Counts)
	require.Equal(t, map[string]float64{"budget.limit": 25}, totals.Gauges)
	require.Equal(t, map[string]telemetry.Percentiles{"sync.staleness": {Count: 1000, P50: 744, P99: 994}}, totals.Timings)
	require.Equal(t, totals, inner.Totals(), "all of it was passed on")
}
