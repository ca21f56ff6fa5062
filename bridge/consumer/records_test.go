package consumer

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/intake"
)

// read returns the first n records of partition 0 of a topic.
func (k *kafka) read(topic string, n int) []*kgo.Record {
	k.t.Helper()
	cl, err := kgo.NewClient(append(k.options(), kgo.ConsumeTopics(topic))...)
	require.NoError(k.t, err)
	defer cl.Close()
	var records []*kgo.Record
	for len(records) < n {
		ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
		fetches := cl.PollFetches(ctx)
		cancel()
		require.NoError(k.t, fetches.Err(), "after %d records", len(records))
		records = append(records, fetches.Records()...)
	}
	return records
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func TestBadRecordsGoToTheDeadLetterTopic(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		long := strings.Repeat("k", 512)
		stamp := time.UnixMilli(1234567).UTC()
		k.produce(
			&kgo.Record{Topic: "one", Key: nil, Value: []byte("v0"), Timestamp: stamp, Headers: []kgo.RecordHeader{{Key: "own", Value: []byte("h")}}},
			&kgo.Record{Topic: "one", Key: []byte{}, Value: []byte("v1")},
			&kgo.Record{Topic: "one", Key: []byte(long), Value: nil},
			&kgo.Record{Topic: "one", Key: []byte(long + "k"), Value: []byte("v3")},
			&kgo.Record{Topic: "one", Key: []byte{0xff, 'a'}, Value: nil},
			&kgo.Record{Topic: "one", Key: []byte("A/b.\x00ü"), Value: nil},
		)
		s := k.config("one")
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 6)
		require.Equal(t, []string{long, "A/b.\x00ü"}, m.sink.accounts())
		letters := k.read("dead", 4)
		require.Len(t, letters, 4)
		require.Equal(t, "v0", string(letters[0].Value))
		require.Equal(t, "h", header(letters[0], "own"))
		require.Equal(t, "the record has no key", header(letters[0], HeaderReason))
		require.Equal(t, "one", header(letters[0], HeaderTopic))
		require.Equal(t, "0", header(letters[0], HeaderPartition))
		require.Equal(t, "0", header(letters[0], HeaderOffset))
		require.Equal(t, stamp.Format(time.RFC3339Nano), header(letters[0], HeaderTimestamp))
		require.Contains(t, header(letters[1], HeaderReason), "empty")
		require.Contains(t, header(letters[2], HeaderReason), "513 bytes")
		require.Equal(t, "4", header(letters[3], HeaderOffset))
		require.Nil(t, letters[3].Value)
		require.EqualValues(t, 4, m.counts.get("bridge.dead_letters"))
		records, held := m.buffer.Held()
		require.Zero(t, records)
		require.Zero(t, held)
		m.stop()
	})
}

func TestOversizedDeadLettersGoWithoutPayload(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		small := "1500"
		_, err := kadm.NewClient(k.client).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &small}, "small")
		require.NoError(t, err)
		big := make([]byte, 3000) // that no compression makes small
		_, _ = rand.NewChaCha8([32]byte{}).Read(big)
		k.produce(
			&kgo.Record{Topic: "one", Key: big[:600], Value: big},
			&kgo.Record{Topic: "one", Key: []byte("ok")},
		)
		k.produce(&kgo.Record{Topic: "one", Headers: []kgo.RecordHeader{{Key: "big", Value: big}}}, &kgo.Record{Topic: "one", Value: []byte("small")})
		s := k.config("one")
		s.Intake.DeadLetterTopic = "small"
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 4)
		byOffset := map[string]*kgo.Record{}
		for _, r := range k.read("small", 3) {
			byOffset[header(r, HeaderOffset)] = r
		}
		require.Len(t, byOffset["0"].Key, 600)
		require.Empty(t, byOffset["0"].Value)
		require.Empty(t, byOffset["2"].Value)
		require.Empty(t, header(byOffset["2"], "big"), "not even its headers fit")
		require.Equal(t, "small", string(byOffset["3"].Value), "it was refused for the others in its batch")
		m.stop()
	})
}

// The watermark waits for the letter to be accepted, and polling does not.
func TestDeadLetterIsDoneOnlyOnceAccepted(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		fault := k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "dead", Err: kerr.TopicAuthorizationFailed, Count: -1})
		k.produce(&kgo.Record{Topic: "one", Key: []byte("a")}, &kgo.Record{Topic: "one"}, &kgo.Record{Topic: "one", Key: []byte("b")})
		s := k.config("one")
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 1)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a", "b"}, m.sink.accounts())
		require.EqualValues(t, 1, k.committed("one", 0).At)
		require.Equal(t, 1, m.Status().DeadLettersPending)
		require.Equal(t, 1, m.Status().BufferRecords)
		fault.Remove()
		k.untilCommitted("one", 0, 3)
		require.Len(t, k.read("dead", 1), 1)
		require.Zero(t, m.Status().DeadLettersPending)
		m.stop()
	})
}

func TestDeadLetterOfAChange(t *testing.T) {
	for _, policy := range []string{intake.BadDeadLetter, intake.BadSkip, intake.BadStop} {
		t.Run(policy, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *kafka) {
				k.fill("one", 1, 2)
				s := k.config("one")
				s.Intake.BadRecord = policy
				m := k.start(s)
				k.until("submitted", func() bool { return len(m.sink.all()) == 2 })
				bad, good := m.sink.all()[0], m.sink.all()[1]
				m.buffer.Release(good)
				good.Assignment.Done(good.Position)
				m.buffer.Release(bad)
				m.DeadLetter(bad, "the signal is invalid")
				switch policy {
				case intake.BadDeadLetter:
					k.untilCommitted("one", 0, 2)
					letter := k.read("dead", 1)[0]
					require.Equal(t, "0:0", string(letter.Key))
					require.Equal(t, "0", header(letter, HeaderOffset))
					require.Equal(t, "the signal is invalid", header(letter, HeaderReason))
				case intake.BadSkip:
					k.untilCommitted("one", 0, 2)
				case intake.BadStop:
					time.Sleep(time.Minute)
					require.EqualValues(t, 0, k.committed("one", 0).At)
					require.Contains(t, m.Status().Partitions[0].Stopped, "--to-offset 1 ")
				}
				require.Zero(t, m.Status().BufferRecords)
				require.Zero(t, m.Status().BufferBytes)
				m.stop()
			})
		})
	}
}

func TestBadRecordStopsItsPartitionOnly(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 2)
		k.produce(&kgo.Record{Topic: "four", Partition: 1}, &kgo.Record{Topic: "four", Partition: 1, Key: []byte("behind")})
		s := k.config("four")
		s.Intake.BadRecord, s.Intake.DeadLetterTopic = intake.BadStop, ""
		s.auto = true
		m := k.start(s)
		for p := range int32(4) {
			k.untilCommitted("four", p, 2)
		}
		k.fill("four", 1, 3)
		k.untilCommitted("four", 0, 5)
		require.EqualValues(t, 2, k.committed("four", 1).At)
		require.NotContains(t, m.sink.accounts(), "behind")
		require.Equal(t, 1, m.Status().StoppedPartitions)
		require.Contains(t, m.Status().Partitions[1].Stopped, "record four/1@2: the record has no key")
		require.Contains(t, m.Status().Partitions[1].Stopped, "wait until nothing before it is uncommitted")
		require.Contains(t, m.Status().Partitions[1].Stopped, "--topic four:1 --reset-offsets --to-offset 3 --execute")
		m.stop()
	})
}

func TestSkippedAndFilteredRecordsAreDone(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		wanted := []kgo.RecordHeader{{Key: "type", Value: []byte("A")}}
		k.produce(
			&kgo.Record{Topic: "one", Key: []byte("a"), Headers: wanted},
			&kgo.Record{Topic: "one", Key: []byte("b")},
			&kgo.Record{Topic: "one", Headers: wanted},
		)
		s := k.config("one")
		s.Intake.BadRecord, s.Intake.Filter = intake.BadSkip, "header:type=A"
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 3)
		require.Equal(t, []string{"a"}, m.sink.accounts())
		m.stop()
	})
}

// The offset to read next has been deleted by retention: that partition stops,
// says how to go on, and the others do.
func TestOutOfRangeStopsThatPartitionOnly(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 10)
		s := k.config("four")
		a := k.start(s)
		k.until("all submitted", func() bool { return len(a.sink.all()) == 40 })
		for _, c := range a.sink.all() {
			if c.Position.Offset < 3 {
				c.Assignment.Done(c.Position)
			}
		}
		for p := range int32(4) {
			k.untilCommitted("four", p, 3)
		}
		a.stop()
		require.NoError(t, k.cluster.DeleteRecords("four", 2, 6))

		s.auto = true
		b := k.start(s)
		for _, p := range []int32{0, 1, 3} {
			k.untilCommitted("four", p, 10)
		}
		k.until("stopped", func() bool { return b.Status().StoppedPartitions == 1 })
		require.Contains(t, b.Status().Partitions[2].Stopped, "kafka-consumer-groups.sh --bootstrap-server "+k.cluster.ListenAddrs()[0]+" --group group --topic four:2 --reset-offsets --to-earliest --execute")
		require.Contains(t, b.log.String(), "partition stopped")
		require.EqualValues(t, 3, k.committed("four", 2).At)
		k.fill("four", 4, 1)
		k.untilCommitted("four", 3, 11)
		require.EqualValues(t, 3, k.committed("four", 2).At)
		b.stop()
		require.EqualValues(t, 3, k.committed("four", 2).At)
	})
}

// Retention comes close to what is not committed yet.
func TestShrinkingHeadroomIsWarnedAbout(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 100)
		a := k.start(k.config("one"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 100 })
		for _, c := range a.sink.all()[:25] {
			c.Assignment.Done(c.Position)
		}
		k.untilCommitted("one", 0, 25)
		headroom := func(want int64) {
			t.Helper()
			k.until("headroom", func() bool { return a.Status().Partitions[0].RetentionHeadroom == want })
		}
		headroom(25)
		require.NoError(t, k.cluster.DeleteRecords("one", 0, 15))
		headroom(10)
		require.NotContains(t, a.log.String(), "retention is close")
		require.NoError(t, k.cluster.DeleteRecords("one", 0, 20))
		headroom(5)
		k.until("warned", func() bool { return strings.Contains(a.log.String(), "retention is close") })
		k.until("gauge", func() bool { return a.counts.gauge("bridge.retention_headroom") == 5 })
		a.stop()
	})
}

// A transaction ends in a control record: unless that is tracked too, the
// watermark stays below the end for ever. Aborted records leave a gap.
func TestTransactionsLetLagReachZero(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		cl, err := kgo.NewClient(append(k.options(), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("one"))...)
		require.NoError(t, err)
		defer cl.Close()
		transaction := func(commit kgo.TransactionEndTry, keys ...string) {
			require.NoError(t, cl.BeginTransaction())
			for _, key := range keys {
				require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Key: []byte(key)}).FirstErr())
			}
			require.NoError(t, cl.EndTransaction(t.Context(), commit))
		}
		transaction(kgo.TryCommit, "a", "b")
		transaction(kgo.TryAbort, "x", "y")
		transaction(kgo.TryCommit, "c")
		transaction(kgo.TryAbort, "z")
		s := k.config("one")
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 10) // 6 records, 4 control records
		require.Equal(t, []string{"a", "b", "c"}, m.sink.accounts())
		k.until("lag 0", func() bool { return m.Status().Partitions[0].EndOffset == 10 && m.Status().Lag == 0 })
		m.stop()
	})
}

// stampByBroker makes the topic one with message.timestamp.type=LogAppendTime.
// kfake stamps batches that say so themselves, instead of looking at the
// topic's configuration, so the bit is set on the way. And it does not renew
// the checksum after that, so the batches are unreadable unless the checksum is
// not looked at.
func (k *kafka) stampByBroker(topic string) {
	id := k.cluster.TopicInfo(topic).TopicID
	const checksum, attributes = 17, 21 // offsets in a record batch
	k.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.cluster.KeepControl()
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			if t.Topic != topic && t.TopicID != id {
				continue
			}
			for _, p := range t.Partitions {
				p.Records[attributes+1] |= 0x08
				binary.BigEndian.PutUint32(p.Records[checksum:], crc32.Checksum(p.Records[attributes:], crc32.MakeTable(crc32.Castagnoli)))
			}
		}
		return nil, nil, false
	})
}

func TestProducersClocksCountOnlyWhenTrusted(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		require.NoError(t, k.cluster.CreateTopic("append", 1, nil))
		k.stampByBroker("append")
		times := func(topic, clock string) []time.Time {
			s := k.config(topic)
			s.Group, s.Intake.Clock = "group-"+topic+clock, clock
			s.options = []kgo.Opt{kgo.DisableFetchCRCValidation()}
			m := k.start(s)
			k.until("submitted", func() bool { return len(m.sink.all()) == 2 })
			m.stop()
			return []time.Time{m.sink.all()[0].Time, m.sink.all()[1].Time}
		}
		produced := time.Now().UTC()
		slow, fast := produced.Add(-15*time.Hour), produced.Add(15*time.Hour)
		for _, topic := range []string{"one", "append"} {
			k.produce(&kgo.Record{Topic: topic, Key: []byte("slow"), Timestamp: slow}, &kgo.Record{Topic: topic, Key: []byte("fast"), Timestamp: fast})
		}
		time.Sleep(time.Minute) // a backlog
		arrived := time.Now()
		for _, at := range append(times("one", intake.ClockAuto), times("append", intake.ClockArrival)...) {
			require.WithinRange(t, at, arrived, arrived.Add(time.Minute))
		}
		for _, at := range times("append", intake.ClockAuto) {
			require.WithinRange(t, at, produced, produced.Add(time.Second))
		}
		trusted := times("one", intake.ClockRecord)
		require.True(t, trusted[0].Equal(slow.Truncate(time.Millisecond)))
		require.False(t, trusted[1].After(time.Now()), "never later than now")
	})
}

// A batch that cannot be read would be fetched again for ever, and nobody know.
func TestUnreadableBatchStopsItsPartitionOnly(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.stampByBroker("one")
		k.fill("one", 1, 1)
		k.fill("four", 4, 3)
		s := k.config("one", "four")
		s.auto = true
		m := k.start(s)
		for p := range int32(4) {
			k.untilCommitted("four", p, 3)
		}
		k.until("stopped", func() bool { return m.Status().StoppedPartitions == 1 })
		stopped := m.Status().Partitions[4]
		require.Contains(t, stopped.Stopped, "crc")
		require.Contains(t, stopped.Stopped, "--topic one:0")
		require.EqualValues(t, 0, stopped.Watermark)
		m.stop()
	})
}
