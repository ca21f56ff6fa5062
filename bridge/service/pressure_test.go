package service_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
)

// TestTemporalThatRefusesForAMinutePausesFetching: nothing is lost, nothing is
// asked for in a storm, and no more is held than BUFFER_RECORDS.
func TestTemporalThatRefusesForAMinutePausesFetching(t *testing.T) {
	for name, refusal := range map[string]error{
		"ResourceExhausted": serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "namespace rate limit exceeded"),
		"Unavailable":       serviceerror.NewUnavailable("no leader"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				config := w.config()
				config.Buffer.Records = 200
				b := w.start(config, nil, nil)
				w.until("it has everything", func() bool { return b.owned() == partitions })
				var tries atomic.Int64
				w.temporal.set(func(request string) error {
					if request == "signal" || request == "signal-with-start" || request == "end" {
						tries.Add(1)
						return refusal
					}
					return nil
				})
				var fetches atomic.Int64
				w.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					fetches.Add(1)
					return nil, nil, false
				})
				const changes = 4000
				w.produce(changes)
				time.Sleep(30 * time.Second)
				fetched := fetches.Load()
				require.Positive(t, fetched)
				time.Sleep(30 * time.Second)
				require.Equal(t, fetched, fetches.Load(), "nothing is fetched")
				status := b.Status()
				require.Equal(t, partitions, status.PausedPartitions)
				require.Equal(t, 200, status.BufferRecords)
				require.EqualValues(t, 200, status.Uncommitted)
				require.Zero(t, w.temporal.signalled())
				require.Contains(t, status.Dispatch.LastError, refusal.Error())
				require.Less(t, tries.Load(), int64(200*15), "each account backs off")
				select {
				case <-b.ended:
					t.Fatal(b.err)
				default:
				}

				w.temporal.set(nil)
				w.until("all is committed", func() bool { return w.committed() == changes })
				require.Equal(t, changes, w.temporal.signalled(), "each exactly once")
				require.Zero(t, b.Status().PausedPartitions)
				require.Zero(t, b.Status().BufferRecords)
			})
		})
	}
}
