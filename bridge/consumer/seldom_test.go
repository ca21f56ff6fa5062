package consumer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What fails again and again for a minute, on many records and partitions at
// once, is logged, and does not fill the log.
func TestLogSaysItSeldom(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		fail func(k *kafka)
	}{
		"dead letters refused": {`msg="dead letter not accepted, trying again"`, func(k *kafka) {
			k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead", Err: kerr.TopicAuthorizationFailed, Count: -1})
		}},
		"commits refused": {"msg=commit ", func(k *kafka) {
			k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownServerError, Count: -1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *kafka) {
				s := k.config("four")
				s.auto = true
				m := k.start(s)
				m.untilAssigned(4)
				test.fail(k)
				k.fill("four", 4, 10)
				for p := range int32(4) {
					for range 10 {
						k.produce(&kgo.Record{Topic: "four", Partition: p}) // has no key
					}
				}
				time.Sleep(time.Minute)
				m.cancel()
				<-m.ended
				lines := strings.Count(m.log.String(), test.line)
				require.Positive(t, lines)
				require.LessOrEqual(t, lines, 10)
			})
		})
	}
}

// A coordinator from which no offsets can be loaded does not keep the process
// from ending.
func TestStopWhileOffsetsCannotBeLoaded(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		bubble(t, func(t *testing.T, k *kafka) {
			fault := k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
			s := k.config("four")
			s.GroupProtocol = protocol
			a := k.start(s)
			k.until("it tries", func() bool { return fault.Hits() > 3 })
			require.LessOrEqual(t, a.stop(), leaveTimeout+5*time.Second)
			require.Empty(t, a.Status().Partitions)
			info := k.cluster.GroupInfo("group")
			require.True(t, info == nil || len(info.Members) == 0, "it has left")
		})
	})
}
