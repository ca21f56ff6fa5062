package ledger

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkMetadataBytes reports how much of what is done beyond the watermark
// travels with a commit: records that are done here and there, with the share of
// those that are, in windows of several lengths. docs/benchmarks.md shows it.
func BenchmarkMetadataBytes(b *testing.B) {
	for _, window := range []int64{1_000, 10_000, 100_000} {
		for _, done := range []float64{0.5, 0.9, 0.99} {
			b.Run(fmt.Sprintf("window=%d/done=%g", window, done), func(b *testing.B) {
				random := rand.New(rand.NewPCG(7, 7))
				m, records := Metadata{TopicID: orders.TopicID, Watermark: 1 << 40}, int64(0)
				for offset := m.Watermark + 1; offset < m.Watermark+window; offset++ {
					if random.Float64() >= done {
						continue
					}
					records++
					if last := len(m.Runs) - 1; last >= 0 && m.Runs[last].Last == offset-1 {
						m.Runs[last].Last = offset
					} else {
						m.Runs = append(m.Runs, Run{First: offset, Last: offset, Epoch: 3})
					}
				}
				var text string
				for b.Loop() {
					text = m.Encode()
				}
				kept, err := Decode(text)
				if err != nil {
					b.Fatal(err)
				}
				told := int64(0)
				for _, r := range kept.Runs {
					told += r.Last - r.First + 1
				}
				b.ReportMetric(float64(len(text)), "bytes")
				b.ReportMetric(100*float64(told)/float64(records), "told_%")
			})
		}
	}
}
