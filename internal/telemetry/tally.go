package telemetry

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// recentTimings is how many of the latest values of a timing percentiles are
// taken over.
const recentTimings = 512

// Tally passes metrics on and keeps what they came to in this process, for the
// status page, where there may be no agent. The Temporal SDK's own metrics are
// passed on only. It is safe for concurrent use.
type Tally struct {
	next Metrics
	lost *losses // nil where nothing is sent

	mu      sync.Mutex
	counts  map[string]int64
	gauges  map[string]float64
	timings map[string]*timings
}

// Totals is what a [Tally] came to.
type Totals struct {
	// Counts since the process started, over all tags; those with an outcome
	// also by it, as "sync.outcomes{written}".
	Counts map[string]int64 `json:"counts"`
	// Gauges are the latest values; gauges with tags are left out.
	Gauges map[string]float64 `json:"gauges"`
	// Timings are the latest values of each timing, whatever their tags.
	Timings map[string]Percentiles `json:"timings"`
	// LostPackets are those that did not get to the agent, as far as can be
	// known: UDP to another machine never says.
	LostPackets int64 `json:"lost_packets"`
}

// Percentiles of the latest 512 values of a timing.
type Percentiles struct {
	Count int64   `json:"count"` // since the process started
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
}

type timings struct {
	count  int64
	recent []time.Duration // a ring once it is full
}

// NewTally returns an empty tally in front of next.
func NewTally(next Metrics) *Tally {
	return &Tally{next: next, counts: map[string]int64{}, gauges: map[string]float64{}, timings: map[string]*timings{}}
}

// Count implements [Metrics].
func (t *Tally) Count(name string, n int64, tags ...string) {
	t.next.Count(name, n, tags...)
	if foreign(name) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[name] += n
	for _, tag := range tags {
		if outcome, ok := strings.CutPrefix(tag, "outcome:"); ok {
			t.counts[name+"{"+outcome+"}"] += n
		}
	}
}

// Gauge implements [Metrics].
func (t *Tally) Gauge(name string, value float64, tags ...string) {
	t.next.Gauge(name, value, tags...)
	if foreign(name) || len(tags) > 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gauges[name] = value
}

// Timing implements [Metrics].
func (t *Tally) Timing(name string, d time.Duration, tags ...string) {
	t.next.Timing(name, d, tags...)
	if foreign(name) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.timings[name]
	if kept == nil {
		kept = new(timings)
		t.timings[name] = kept
	}
	if len(kept.recent) < recentTimings {
		kept.recent = append(kept.recent, d)
	} else {
		kept.recent[kept.count%recentTimings] = d
	}
	kept.count++
}

// Totals returns what there was so far.
func (t *Tally) Totals() Totals {
	t.mu.Lock()
	defer t.mu.Unlock()
	totals := Totals{Counts: maps.Clone(t.counts), Gauges: maps.Clone(t.gauges), Timings: map[string]Percentiles{}, LostPackets: t.lost.count()}
	for name, kept := range t.timings {
		sorted := slices.Sorted(slices.Values(kept.recent))
		totals.Timings[name] = Percentiles{
			Count: kept.count,
			P50:   sorted[(len(sorted)-1)*50/100].Seconds(),
			P99:   sorted[(len(sorted)-1)*99/100].Seconds(),
		}
	}
	return totals
}

func foreign(name string) bool { return strings.HasPrefix(name, "temporal.") }
