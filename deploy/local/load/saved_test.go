package load

import (
	"fmt"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
)

// BenchmarkSavedByDelay computes, without running anything, what share of calls a
// settle delay saves: the fewest calls that read every change in time, for an
// hour of bursts, with the default settle time. docs/benchmarks.md shows it.
func BenchmarkSavedByDelay(b *testing.B) {
	const settle, span = 21 * time.Second, time.Hour
	for _, accounts := range []int{20_000, 200} {
		traffic := Config{Accounts: accounts, Rate: 16, Seed: 7}
		byAccount, changes := map[string][]time.Time{}, 0
		for _, e := range first(traffic.Events(), span) {
			byAccount[e.Account] = append(byAccount[e.Account], time.Unix(0, 0).Add(e.After))
			changes++
		}
		for _, delay := range []time.Duration{21, 22, 23, 25, 30, 40, 50, 80} {
			delay *= time.Second
			b.Run(fmt.Sprintf("accounts=%d/delay=%s", accounts, delay), func(b *testing.B) {
				calls := 0
				for b.Loop() {
					calls = 0
					for _, times := range byAccount {
						calls += check.Optimum(times, settle, delay)
					}
				}
				b.ReportMetric(0, "ns/op") // the time says nothing
				b.ReportMetric(float64(changes), "changes")
				b.ReportMetric(float64(calls), "calls")
				b.ReportMetric(100*check.SavedRatio(changes, calls), "saved_%")
			})
		}
	}
}
