package consumer

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func partitionsOf(m *member) []int32 {
	var ps []int32
	for _, p := range m.Status().Partitions {
		ps = append(ps, p.Partition)
	}
	return ps
}

func protocols(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{ProtocolClassic, ProtocolConsumer} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

func TestRebalanceWhileChangesAreInFlight(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		bubble(t, func(t *testing.T, k *kafka) {
			k.fill("four", 4, 5)
			s := k.config("four")
			s.GroupProtocol = protocol
			a := k.start(s)
			k.until("all submitted", func() bool { return len(a.sink.all()) == 20 })
			// Of each partition, the first two and the last are done.
			for _, c := range a.sink.all() {
				a.buffer.Release(c)
				if o := c.Position.Offset; o < 2 || o == 4 {
					c.Assignment.Done(c.Position)
				}
			}
			b := k.start(s)
			k.until("shared", func() bool { return len(partitionsOf(a)) == 2 && len(partitionsOf(b)) == 2 })
			moved := partitionsOf(b)
			k.until("moved changes submitted again", func() bool { return len(b.sink.all()) == 4 })
			for _, p := range moved {
				require.EqualValues(t, 2, k.committed("four", p).At, "committed on revoke")
			}
			require.EqualValues(t, 2, b.counts.get("bridge.skipped_completed"))

			// Late: what A does for partitions it has lost commits nothing.
			for _, c := range a.sink.all() {
				require.Equal(t, slices.Contains(moved, c.Source.Partition), c.Assignment.Dropped())
				c.Assignment.Done(c.Position)
			}
			time.Sleep(5 * time.Second)
			for p := range int32(4) {
				want := int64(5)
				if slices.Contains(moved, p) {
					want = 2
				}
				require.Equal(t, want, k.committed("four", p).At, "partition %d", p)
			}
			for _, c := range b.sink.all() {
				c.Assignment.Done(c.Position)
			}
			for p := range int32(4) {
				k.untilCommitted("four", p, 5)
			}
			a.stop()
			k.until("all with b", func() bool { return len(partitionsOf(b)) == 4 })
			b.stop()
			k.neverBackwards()
		})
	})
}

// A has changes of a partition in flight, loses it to B, and gets it back: what
// is then completed for the first assignment must not count for the second.
func TestLateDoneAfterThePartitionCameBack(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 3)
		a := k.start(k.config("four"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 12 })
		first := a.sink.all()
		b := k.start(k.config("four"))
		k.until("shared", func() bool { return len(partitionsOf(a)) == 2 && len(partitionsOf(b)) == 2 })
		moved := partitionsOf(b)
		b.stop()
		k.until("back", func() bool { return len(partitionsOf(a)) == 4 })
		k.until("submitted again", func() bool { return len(a.sink.all()) == 18 })

		for _, c := range first {
			c.Assignment.Done(c.Position)
		}
		time.Sleep(5 * time.Second)
		for p := range int32(4) {
			want := int64(3)
			if slices.Contains(moved, p) {
				want = 0
			}
			require.Equal(t, want, k.committed("four", p).At, "partition %d", p)
		}
		for _, c := range a.sink.all() {
			c.Assignment.Done(c.Position)
		}
		for p := range int32(4) {
			k.untilCommitted("four", p, 3)
		}
		a.stop()
		k.neverBackwards()
	})
}

// Lost partitions belong to somebody else already: no commit, and a new start.
func TestLostIsDroppedWithoutCommit(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 4)
		s := k.config("one")
		s.CommitInterval = time.Minute
		a := k.start(s)
		k.until("all submitted", func() bool { return len(a.sink.all()) == 4 })
		first := a.sink.all()
		for _, c := range first[:3] {
			c.Assignment.Done(c.Position)
		}
		k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.IllegalGeneration, TopLevel: true, Count: 1})
		k.until("submitted again", func() bool { return len(a.sink.all()) == 8 })
		require.True(t, first[0].Assignment.Dropped())
		require.EqualValues(t, 0, k.committed("one", 0).At)
		a.stop()
	})
}

func TestPausesAtTheBoundAndResumes(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 5000)
		s := k.config("one")
		s.Buffer.Records = 100
		a := k.start(s)
		k.until("full", func() bool { return len(a.sink.all()) == 100 })
		time.Sleep(10 * time.Second)
		status := a.Status()
		require.Len(t, a.sink.all(), 100)
		require.Equal(t, 100, status.BufferRecords)
		require.Equal(t, 1, status.PausedPartitions)
		require.True(t, status.Partitions[0].Paused)
		require.LessOrEqual(t, status.Partitions[0].Held, pollRecords)
		for name, value := range map[string]float64{
			"bridge.buffer.records": 100, "bridge.buffer.bytes": float64(status.BufferBytes), "bridge.uncommitted": 100,
			"bridge.paused_partitions": 1, "bridge.watermark_lag": 5000,
		} {
			require.EqualValues(t, value, a.counts.gauge(name), name)
		}

		released := 0
		for released < 5000 {
			changes := a.sink.all()
			for _, c := range changes[released:] {
				a.buffer.Release(c)
				c.Assignment.Done(c.Position)
			}
			released = len(changes)
			k.until("more", func() bool { return len(a.sink.all()) > released || released == 5000 })
			require.LessOrEqual(t, len(a.sink.all())-released, 100)
		}
		for i, c := range a.sink.all() {
			require.EqualValues(t, i, c.Position.Offset)
		}
		k.untilCommitted("one", 0, 5000)
		k.until("resumed", func() bool { return a.Status().PausedPartitions == 0 })
		a.stop()
	})
}

func TestMaxUncommittedPauses(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 200)
		s := k.config("one")
		s.Buffer.MaxUncommitted = 50
		a := k.start(s)
		k.until("at the bound", func() bool { return len(a.sink.all()) == 50 })
		for _, c := range a.sink.all() {
			a.buffer.Release(c)
		}
		time.Sleep(10 * time.Second)
		require.Len(t, a.sink.all(), 50, "signalled is not committed")
		for n := 50; n < 200; n = len(a.sink.all()) {
			for _, c := range a.sink.all() {
				c.Assignment.Done(c.Position)
			}
			k.until("more", func() bool { return len(a.sink.all()) > n })
		}
		a.stop()
	})
}

// kgo's pauses outlive an assignment. A partition that is revoked while paused
// and comes back must be fetched.
func TestPausesAreLiftedOnRevoke(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 50)
		s := k.config("four")
		s.Buffer.Records = 10
		a := k.start(s)
		k.until("all paused", func() bool { return a.Status().PausedPartitions == 4 })
		auto := k.config("four")
		auto.auto = true
		b := k.start(auto)
		k.until("shared", func() bool { return len(partitionsOf(a)) == 2 && len(partitionsOf(b)) == 2 })
		moved := partitionsOf(b)
		for _, p := range moved {
			k.untilCommitted("four", p, 50)
		}
		b.stop()
		k.until("back", func() bool { return len(partitionsOf(a)) == 4 })
		// Room again; and there is something new to fetch.
		for _, c := range a.sink.all() {
			a.buffer.Release(c)
		}
		for _, p := range moved {
			k.produce(&kgo.Record{Topic: "four", Partition: p, Key: []byte("new")})
		}
		finish := func() {
			for _, c := range a.sink.all() {
				c.Assignment.Done(c.Position)
			}
		}
		seen := 0
		k.until("everything fetched", func() bool {
			finish()
			for _, c := range a.sink.all()[seen:] {
				if seen >= 10 {
					a.buffer.Release(c)
				}
				seen++
			}
			news := 0
			for _, c := range a.sink.all() {
				if c.Account == "new" {
					news++
				}
			}
			return news == len(moved)
		})
		a.stop()
	})
}

// While the clock is off nothing is admitted, but the loop turns. What was
// fetched meanwhile, or before and held for want of room, does not keep the times
// of that clock once it was set right.
func TestNothingOfAClockThatIsOffIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 5)
		s := k.config("one")
		s.Buffer.Records = 2
		var agrees atomic.Bool
		agrees.Store(true)
		s.mayAdmit = agrees.Load
		a := k.start(s)
		k.until("full", func() bool { return len(a.sink.all()) == 2 })
		agrees.Store(false)
		k.fill("one", 1, 5)
		for _, c := range a.sink.all() {
			a.buffer.Release(c)
		}
		turned := a.turns.Load()
		time.Sleep(20 * time.Second)
		require.Len(t, a.sink.all(), 2)
		require.Zero(t, a.Status().BufferRecords)
		require.Greater(t, a.turns.Load(), turned)
		set := time.Now()
		agrees.Store(true)
		a.sink.mu.Lock()
		a.sink.auto = true
		a.sink.mu.Unlock()
		k.until("admitted", func() bool { return len(a.sink.all()) == 10 })
		for _, c := range a.sink.all()[2:] {
			require.False(t, c.Time.Before(set), "offset %d", c.Position.Offset)
		}
		a.stop()
	})
}

// Shutdown is bounded even if nobody answers any more.
func TestShutdownIsBoundedWithoutBrokers(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("one", 1, 5)
		a := k.start(k.config("one"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 5 })
		a.sink.all()[0].Assignment.Done(a.sink.all()[0].Position)
		k.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.cluster.KeepControl()
			return nil, errNotAnswered, true // cuts the connection
		})
		k.cluster.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.cluster.KeepControl()
			return nil, errNotAnswered, true
		})
		require.LessOrEqual(t, a.stop(), 25*time.Second)
	})
}

// Kafka is away for longer than the session: the partitions are lost, and all
// goes on by itself once it is back.
func TestRecoversFromAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		k.fill("four", 4, 5)
		a := k.start(k.config("four"))
		k.until("all submitted", func() bool { return len(a.sink.all()) == 20 })
		var down atomic.Bool
		down.Store(true)
		k.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			k.cluster.KeepControl()
			return nil, errNotAnswered, down.Load() // cuts the connection
		})
		for _, c := range a.sink.all() {
			c.Assignment.Done(c.Position)
		}
		turned := a.turns.Load()
		time.Sleep(5 * time.Minute)
		require.Greater(t, a.turns.Load(), turned+100, "the loops turn meanwhile: a lease must not end a process that waits")
		down.Store(false)
		k.until("all committed", func() bool {
			for _, c := range a.sink.all() { // also what came again
				c.Assignment.Done(c.Position)
			}
			for p := range int32(4) {
				if k.committed("four", p).At != 5 {
					return false
				}
			}
			return true
		})
		k.fill("four", 4, 1)
		k.until("fetches again", func() bool { return slices.Contains(a.sink.accounts()[20:], "3:0") })
		a.stop()
		k.neverBackwards()
	})
}

func TestStopWhileStartingIsNoError(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one", "missing")
		a := k.start(s)
		time.Sleep(time.Second)
		require.Less(t, a.stop(), time.Second)
		require.Nil(t, a.client, "it must not have joined")
	})
}

func TestUnreachableBrokerAndMissingTopicsAreNamed(t *testing.T) {
	bubble(t, func(t *testing.T, k *kafka) {
		s := k.config("one")
		s.Brokers = []string{"127.0.0.1:1"}
		began := time.Now()
		a := k.start(s)
		<-a.ended
		require.ErrorContains(t, a.err, "KAFKA_BROKERS")
		require.ErrorContains(t, a.err, "127.0.0.1:1")
		require.LessOrEqual(t, time.Since(began), s.StartTimeout+time.Second)

		s = k.config("one", "missing")
		s.Intake.DeadLetterTopic = "nowhere"
		b := k.start(s)
		<-b.ended
		require.ErrorContains(t, b.err, `KAFKA_TOPICS: topic "missing" does not exist`)
		require.ErrorContains(t, b.err, `DEAD_LETTER_TOPIC: topic "nowhere" does not exist`)
		info := k.cluster.GroupInfo("group")
		require.True(t, info == nil || len(info.Members) == 0, "it must not have joined")
	})
}
