package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// SETTLE_CLOCK=auto takes the broker's time where the topic has it, and the time
// of arrival where the producer's stands instead; the producer's clock is off by
// an hour.
func TestChangeTimeFollowsTheTopicsTimestamps(t *testing.T) {
	if !on.apache {
		t.Skip("kfake does not look at message.timestamp.type")
	}
	for _, stamp := range []string{"CreateTime", "LogAppendTime"} {
		t.Run(stamp, func(t *testing.T) {
			f := newFixture(t, 1, "message.timestamp.type", stamp)
			before := time.Now().Truncate(time.Millisecond)
			// The fixture's client would take the slow one for overdue.
			cl, err := kgo.NewClient(kgo.SeedBrokers(f.seeds...))
			require.NoError(t, err)
			defer cl.Close()
			records := []*kgo.Record{
				{Topic: f.topic, Key: []byte("slow"), Timestamp: before.Add(-time.Hour)},
				{Topic: f.topic, Key: []byte("fast"), Timestamp: before.Add(time.Hour / 2)},
			}
			require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
			f.mu.Lock()
			f.produced[0] = []int64{records[0].Offset, records[1].Offset}
			f.mu.Unlock()
			produced := time.Now()
			a := f.start(f.config())
			for _, c := range a.untilSubmitted(2) {
				if stamp == "LogAppendTime" {
					require.WithinRange(t, c.Time, before, produced, c.Account)
				} else {
					require.WithinRange(t, c.Time, produced, time.Now(), c.Account)
				}
			}
			f.untilFlow(a)
			a.stop()
		})
	}
}
