package consumer

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// one returns the only partition of topic one, to be used under mu.
func (m *member) one() *partition {
	m.k.t.Helper()
	m.untilAssigned(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.partitions[partitionKey{"one", 0}]
}

// A record that was seen before, or whose assignment is gone, takes no room: else
// nothing would be let in any more some day.
func TestRoomOfRecordsThatComeToNothingIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		m := k.start(k.config("one"))
		part := m.one()
		it := item{position: contract.Position{Offset: 0}, reading: intake.Reading{Account: "a"}, size: 400}
		held := func() int {
			records, _ := m.buffer.Held()
			return records
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for range 3 {
			require.True(t, part.gate.Admit(it.size, 1))
			m.take(part, it)
			require.Equal(t, 1, held(), "repeated")
		}
		part.assignment.Drop()
		it.position.Offset = 1
		require.True(t, part.gate.Admit(it.size, 1))
		m.take(part, it)
		require.Equal(t, 1, held(), "gone")
	})
}

// A commit, and the end of an assignment, make room: whoever waits for some is
// not left to wait for the next poll to end.
func TestCommitsAndEndsWakeWhoWaitsForRoom(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		m := k.start(k.config("one"))
		part := m.one()
		wakes := func(what string, act func()) {
			t.Helper()
			select {
			case <-m.buffer.Woken(): // from before
			default:
			}
			act()
			require.Len(t, m.buffer.Woken(), 1, what)
		}
		wakes("commit", func() {
			p := contract.Position{Offset: 0}
			part.assignment.See(p, time.Now())
			part.assignment.Done(p)
			m.commit(t.Context(), m.ledger.Assignments())
		})
		wakes("end", func() { m.end(map[string][]int32{"one": {0}}, "lost") })
		m.stop()
	})
}

// Fetches that cannot be read stop their partition only if they come in a row.
func TestReadableFetchForgivesUnreadableOnes(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		m := k.start(k.config("one"))
		part := m.one()
		topic := kgo.FetchTopic{Topic: "one"}
		m.mu.Lock()
		defer m.mu.Unlock()
		unreadable := func(n int) {
			for range n {
				m.receivePartition(topic, &kgo.FetchPartition{Err: errors.New("crc")}, time.Now())
			}
		}
		unreadable(unreadableLimit)
		m.receivePartition(topic, &kgo.FetchPartition{Records: []*kgo.Record{{Topic: "one", Key: []byte("a")}}}, time.Now())
		unreadable(unreadableLimit)
		require.Empty(t, part.stopped)
		unreadable(1)
		require.Contains(t, part.stopped, "crc")
	})
}

// The epoch of the committed offset is what tells the client, and by it the
// broker, that the log was truncated meanwhile.
func TestAssignmentsStartWithTheCommittedEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 5)
		s := k.config("one")
		s.auto = true
		m := k.start(s)
		k.untilCommitted("one", 0, 5)
		require.EqualValues(t, 0, k.committed("one", 0).LeaderEpoch)
		offsets, err := m.adjustOffsets(t.Context(), map[string]map[int32]kgo.Offset{"one": {0: kgo.NewOffset()}})
		require.NoError(t, err)
		require.Equal(t, kgo.EpochOffset{Epoch: 0, Offset: 5}, offsets["one"][0].EpochOffset())
		m.stop()
	})
}

// An assignment that no callback of the client has ended is over with the
// consumer all the same.
func TestNothingIsAssignedAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		m := k.start(k.config("one"))
		m.untilAssigned(1)
		stray := m.ledger.Assign(ledger.Start{Source: contract.Source{TopicID: k.cluster.TopicInfo("four").TopicID, Topic: "four"}})
		m.stop()
		require.True(t, stray.Dropped())
		require.Empty(t, m.ledger.Assignments())
	})
}

// A static member of KIP-848 says with its instance ID that it will be back: then
// its partitions wait for the next process, which may join with the ID at once.
func TestStaticMemberSaysThatItWillBeBack(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one")
		s.GroupProtocol, s.InstanceID = ProtocolConsumer, "bridge-0"
		var back []string
		k.cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
			k.cluster.KeepControl()
			if r := req.(*kmsg.ConsumerGroupHeartbeatRequest); r.MemberEpoch == -2 && r.InstanceID != nil {
				back = append(back, *r.InstanceID)
			}
			return nil, nil, false
		})
		m := k.start(s)
		m.untilAssigned(1)
		m.stop()
		require.Equal(t, []string{"bridge-0"}, back)
	})
}
