package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/ledger"
)

func TestCommitsTheContiguousPrefixAndTheNextOwnerSkipsTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 10)
		a := k.start(k.config("one"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 10 })
		for _, i := range []int{0, 1, 5, 6, 9} {
			c := a.sink.all()[i]
			a.buffer.Release(c)
			c.Assignment.Done(c.Position)
		}
		k.untilCommitted("one", 0, 2)
		md, err := ledger.Decode(k.committed("one", 0).Metadata)
		require.NoError(t, err)
		require.Len(t, md.Runs, 2)
		a.stop()

		b := k.start(k.config("one"))
		k.until("the rest submitted", func() bool { return len(b.sink.all()) == 5 && b.counts.get("bridge.skipped_completed") == 3 })
		require.Equal(t, []string{"0:2", "0:3", "0:4", "0:7", "0:8"}, b.sink.accounts())
		require.Equal(t, 5, b.Status().BufferRecords, "what is skipped takes no room")
		for _, c := range b.sink.all() {
			c.Assignment.Done(c.Position)
		}
		k.untilCommitted("one", 0, 10)
		k.until("lag 0", func() bool { return b.Status().Lag == 0 && b.Status().Uncommitted == 0 })
		b.stop()
		k.neverBackwards()
	})
}

// What is covered between the last tick and the end is committed at the end.
func TestShutdownCommits(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 3)
		s := k.config("one")
		s.CommitInterval = time.Minute
		a := k.start(s)
		k.until("all submitted", func() bool { return len(a.sink.all()) == 3 })
		for _, c := range a.sink.all()[:2] {
			c.Assignment.Done(c.Position)
		}
		require.Less(t, a.stop(), time.Second, "it waits for no workflow")
		require.EqualValues(t, 2, k.committed("one", 0).At)
	})
}

func TestFailedCommitsAreNeitherLostNorReplayed(t *testing.T) {
	for name, err := range map[string]*kerr.Error{
		"per partition": kerr.UnknownServerError,
		"retriable":     kerr.CoordinatorLoadInProgress,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *kafka) {
				a := k.start(k.config("one"))
				a.untilAssigned(1)
				k.fill("one", 1, 6)
				k.until("all submitted", func() bool { return len(a.sink.all()) == 6 })
				done := func(from, to int) {
					for _, c := range a.sink.all()[from:to] {
						c.Assignment.Done(c.Position)
					}
				}
				done(0, 3)
				k.untilCommitted("one", 0, 3)
				// Nothing new is done after the commits that fail, so nothing but
				// trying again brings them through.
				fault := k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: err, Count: 3})
				done(3, 6)
				k.untilCommitted("one", 0, 6)
				require.Equal(t, 3, fault.Hits())
				require.NotZero(t, a.counts.get("bridge.commits"))
				k.until("none uncommitted", func() bool { return a.Status().Uncommitted == 0 })
				a.stop()
				k.neverBackwards()
			})
		})
	}
}

// A broker that takes no metadata of ours gets commits without.
func TestRefusedMetadataHoldsUpNoCommit(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 3)
		a := k.start(k.config("one"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 3 })
		k.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.cluster.KeepControl()
			sent := req.(*kmsg.OffsetCommitRequest).Topics[0]
			if *sent.Partitions[0].Metadata == "" {
				return nil, nil, false
			}
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = sent.Partitions[0].Partition, kerr.OffsetMetadataTooLarge.Code
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID, topic.Partitions = sent.Topic, sent.TopicID, append(topic.Partitions, p)
			resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		for _, c := range a.sink.all() {
			c.Assignment.Done(c.Position)
		}
		k.untilCommitted("one", 0, 3)
		require.Empty(t, k.committed("one", 0).Metadata)
		a.stop()
	})
}

func TestFencedInstanceEndsRun(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one")
		s.InstanceID = "bridge-0"
		a := k.start(s)
		a.untilAssigned(1)
		k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.FencedInstanceID, TopLevel: true, Count: -1})
		<-a.ended
		require.ErrorIs(t, a.err, kerr.FencedInstanceID)
	})
}
