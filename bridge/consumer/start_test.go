package consumer

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/quiesce-io/quiesce/bridge/ledger"
)

// "latest" is decided once, and committed before anything is read: what comes
// after that is never skipped, whoever crashes.
func TestLatestIsResolvedOnceAndCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 7)
		s := k.config("one")
		s.Start, s.CommitInterval = StartLatest, time.Minute
		a := k.start(s)
		a.untilAssigned(1)
		require.EqualValues(t, 7, k.committed("one", 0).At, "committed at the first assignment")
		require.NotContains(t, a.log.String(), "bridge replay", "nobody has set an offset")
		k.fill("one", 1, 3)
		k.until("only the new", func() bool { return len(a.sink.all()) == 3 })
		require.EqualValues(t, 7, a.sink.all()[0].Position.Offset)
		a.stop()

		b := k.start(s)
		k.until("again from 7", func() bool { return len(b.sink.all()) == 3 })
		b.stop()
	})
}

// A topic that was created anew while no bridge ran has no commits, like one that
// the group has never read: what is in it already and is not read is told.
func TestRecordsBeforeTheLatestAreWarnedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 1, 7) // nothing in the others
		admin := kadm.NewClient(k.client)
		_, err := admin.DeleteRecords(t.Context(), kadm.Offsets{"four": {0: {Topic: "four", At: 2}}})
		require.NoError(t, err)
		s := k.config("four")
		s.Start = StartLatest
		told := func(m *member) (warned []string) {
			for line := range strings.Lines(m.log.String()) {
				if strings.Contains(line, "level=WARN") && strings.Contains(line, "KAFKA_START=earliest") {
					warned = append(warned, line)
				}
			}
			return warned
		}
		a := k.start(s)
		a.untilAssigned(4)
		a.stop()
		require.Len(t, told(a), 1)
		require.Contains(t, told(a)[0], "topic=four partition=0 offset=7 records=5 ")
		command := "kafka-consumer-groups.sh --bootstrap-server " + k.cluster.ListenAddrs()[0] + " --group group --topic four:0 --reset-offsets --to-earliest --execute"
		require.Contains(t, told(a)[0], command)
		require.Equal(t, 3, strings.Count(a.log.String(), `level=INFO msg="no commit yet: starting"`))

		b := k.start(s)
		b.untilAssigned(4)
		b.stop()
		require.Empty(t, told(b), "there are commits")
		s.Group, s.Start = "another", StartEarliest
		c := k.start(s)
		k.until("all is read", func() bool { return len(c.sink.all()) == 5 })
		c.stop()
		require.Empty(t, told(c))

		// The command does what it is for.
		commit := kadm.Offsets{}
		commit.Add(kadm.Offset{Topic: "four", Partition: 0, At: 2, LeaderEpoch: -1})
		require.NoError(t, admin.CommitAllOffsets(t.Context(), "group", commit))
		s.Group, s.Start = "group", StartLatest
		d := k.start(s)
		k.until("all is read", func() bool { return len(d.sink.all()) == 5 })
		d.stop()
	})
}

// Two members start a group at once, and another has started on two partitions
// and died before it came to the rest: each partition starts at the end.
func TestLatestHoldsForEveryPartitionThereWas(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 7)
		commit := kadm.Offsets{}
		for p := range int32(2) {
			m := ledger.Metadata{TopicID: k.cluster.TopicInfo("four").TopicID, Watermark: 7, Partitions: 4}
			commit.Add(kadm.Offset{Topic: "four", Partition: p, At: 7, LeaderEpoch: -1, Metadata: m.Encode()})
		}
		require.NoError(t, kadm.NewClient(k.client).CommitAllOffsets(t.Context(), "group", commit))
		s := k.config("four")
		s.Start = StartLatest
		a, b := k.start(s), k.start(s)
		k.until("shared", func() bool { return len(partitionsOf(a)) == 2 && len(partitionsOf(b)) == 2 })
		for p := range int32(4) {
			k.untilCommitted("four", p, 7)
		}
		require.Empty(t, a.sink.all())
		require.Empty(t, b.sink.all())
		a.stop()
		b.stop()
	})
}

func TestPartitionsThatAppearLaterStartAtTheirBeginning(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 2)
		s := k.config("four")
		s.Start, s.auto = StartLatest, true
		a := k.start(s)
		a.untilAssigned(4)
		a.stop()
		_, err := kadm.NewClient(k.client).CreatePartitions(t.Context(), 1, "four")
		require.NoError(t, err)
		k.client.ForceMetadataRefresh()
		time.Sleep(10 * time.Second) // let it happen
		k.produce(&kgo.Record{Topic: "four", Partition: 4, Key: []byte("early")})
		b := k.start(s)
		k.untilCommitted("four", 4, 1)
		require.Equal(t, []string{"early"}, b.sink.accounts())
		b.stop()
	})
}

// A topic that was deleted and created again shares nothing with the old one
// but the name. Its commits survive here, as they may.
func TestRecreatedTopicInheritsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 5)
		s := k.config("one")
		s.Start, s.auto = StartLatest, true
		a := k.start(s)
		a.untilAssigned(1)
		k.fill("one", 1, 1)
		k.untilCommitted("one", 0, 6)
		old := k.committed("one", 0)

		require.NoError(t, k.cluster.DeleteTopic("one"))
		require.NoError(t, k.cluster.CreateTopic("one", 1, nil))
		<-a.ended
		require.ErrorContains(t, a.err, "deleted and created again")

		k.client.PurgeTopicsFromClient("one")
		k.fill("one", 1, 9)
		// As brokers keep it that do not delete a group's offsets with a topic.
		commit := kadm.Offsets{}
		commit.Add(kadm.Offset{Topic: "one", Partition: 0, At: 6, LeaderEpoch: -1, Metadata: old.Metadata})
		fresh, err := kgo.NewClient(k.options()...)
		require.NoError(t, err)
		defer fresh.Close()
		require.NoError(t, kadm.NewClient(fresh).CommitAllOffsets(t.Context(), "group", commit))

		b := k.start(s)
		k.until("read from the beginning", func() bool { return len(b.sink.all()) == 9 })
		k.untilCommitted("one", 0, 9)
		b.stop()
	})
}

// With KAFKA_TOPIC_RECREATED=stop the commits of the old topic stay as they are:
// they are what stops the next process too.
func TestRecreatedTopicThatIsRefusedKeepsItsCommits(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 9)
		word := ledger.Metadata{TopicID: k.cluster.TopicInfo("four").TopicID, Watermark: 6, Partitions: 1}.Encode()
		commit := kadm.Offsets{}
		commit.Add(kadm.Offset{Topic: "one", Partition: 0, At: 6, LeaderEpoch: -1, Metadata: word})
		require.NoError(t, kadm.NewClient(k.client).CommitAllOffsets(t.Context(), "group", commit))
		s := k.config("one")
		s.Recreated = RecreatedStop
		for range 2 {
			m := k.start(s)
			k.until("stopped", func() bool { return m.Status().StoppedPartitions == 1 })
			time.Sleep(5 * time.Second)
			m.stop()
			require.Empty(t, m.sink.all())
			require.EqualValues(t, 6, k.committed("one", 0).At)
			require.Equal(t, word, k.committed("one", 0).Metadata)
		}
	})
}

// Offsets that somebody sets by hand, and metadata of other programs.
func TestForeignCommitsAreTakenAsTheyAre(t *testing.T) {
	for name, metadata := range map[string]string{
		"foreign":      "somebody's",
		"Kafka's tool": "",
		"moved":        ledger.Metadata{Watermark: 7, Runs: []ledger.Run{{First: 8, Last: 9}}}.Encode(),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *kafka) {
				k.fill("one", 1, 10)
				if name == "moved" {
					m, err := ledger.Decode(metadata)
					require.NoError(t, err)
					m.TopicID = k.cluster.TopicInfo("one").TopicID
					metadata = m.Encode()
				}
				commit := kadm.Offsets{}
				commit.Add(kadm.Offset{Topic: "one", Partition: 0, At: 3, LeaderEpoch: -1, Metadata: metadata})
				require.NoError(t, kadm.NewClient(k.client).CommitAllOffsets(t.Context(), "group", commit))
				s := k.config("one")
				s.auto = true
				m := k.start(s)
				k.untilCommitted("one", 0, 10)
				require.Len(t, m.sink.all(), 7)
				m.stop()
				require.Equal(t, name != "foreign", strings.Contains(m.log.String(), "bridge replay"))
			})
		})
	}
}

// failFetchOnce lets the next answer about all of the group's commits have an
// error for partition 0 of a topic, and for the others a commit at 0.
func (k *kafka) failFetchOnce(name, metadata string, partitions int32) *atomic.Bool {
	failed := new(atomic.Bool)
	k.cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.cluster.KeepControl()
		r := req.(*kmsg.OffsetFetchRequest)
		if failed.Load() || r.Groups[0].Topics != nil { // the latter is the client's own
			return nil, nil, false
		}
		failed.Store(true)
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = name, k.cluster.TopicInfo(name).TopicID
		for i := range partitions {
			p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			p.Partition, p.Metadata = i, &metadata
			if i == 0 {
				p.Offset, p.Metadata, p.ErrorCode = -1, nil, kerr.UnstableOffsetCommit.Code
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		group := kmsg.NewOffsetFetchResponseGroup()
		group.Group, group.Topics = r.Groups[0].Group, append(group.Topics, topic)
		resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.Groups = append(resp.Groups, group)
		return resp, nil, true
	})
	return failed
}

// A commit that cannot be read is not the same as none: with KAFKA_START=latest
// what it had not covered would be lost.
func TestCommitsThatCannotBeReadAreNotTakenForNone(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("four")
		s.Start, s.auto = StartLatest, true
		first := k.start(s)
		first.untilAssigned(4)
		first.stop()
		word := k.committed("four", 0).Metadata
		k.fill("four", 4, 10)
		failed := k.failFetchOnce("four", word, 4)
		m := k.start(s)
		for p := range int32(4) {
			k.untilCommitted("four", p, 10)
		}
		require.True(t, failed.Load())
		require.Len(t, m.sink.all(), 40)
		m.stop()
	})
}

// Nor does one keep word of a topic that was created anew from being left.
func TestWordOfARecreatedTopicIsLeftAtTheSecondTry(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one")
		s.Start = StartLatest
		a := k.start(s)
		a.untilAssigned(1)
		require.NoError(t, k.cluster.DeleteTopic("one"))
		require.NoError(t, k.cluster.CreateTopic("one", 1, nil))
		failed := k.failFetchOnce("one", "", 1)
		k.until("ended", a.hasEnded)
		require.ErrorContains(t, a.err, "deleted and created again")
		require.True(t, failed.Load())
		word, err := ledger.Decode(k.committed("one", 0).Metadata)
		require.NoError(t, err)
		require.EqualValues(t, k.cluster.TopicInfo("one").TopicID, word.TopicID)
	})
}

// Without an ID, a topic that was created anew would inherit the old one's
// offsets and positions.
func TestTopicsNeedAnID(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one")
		s.options = []kgo.Opt{kgo.MaxVersions(kversion.V2_7_0())}
		a := k.start(s)
		k.until("ended", a.hasEnded)
		require.ErrorContains(t, a.err, `KAFKA_TOPICS: topic "one"`)
		require.ErrorContains(t, a.err, "has no topic ID: use brokers that give one")
	})
}
