package kafkatest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/consumer"
)

// protocols runs a test with both group protocols.
func protocols(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{consumer.ProtocolClassic, consumer.ProtocolConsumer} {
		t.Run(protocol, func(t *testing.T) { test(t, protocol) })
	}
}

func untilShared(f *fixture, partitions int, members ...*member) {
	f.t.Helper()
	f.until("partitions shared evenly", func() bool {
		var all []int32
		for _, m := range members {
			own := m.partitions()
			if len(own) < partitions/len(members) {
				return false
			}
			all = append(all, own...)
		}
		slices.Sort(all)
		return len(all) == partitions && len(slices.Compact(all)) == partitions
	})
}

// 1 → 4 → 2 → 1 members while changes flow, one of them leaving by a crash.
func TestScaleUnderLoad(t *testing.T) {
	test := func(t *testing.T, protocol string) {
		const partitions = 8
		f := newFixture(t, partitions)
		cfg := f.config()
		cfg.GroupProtocol = protocol
		var members []*member
		var stops []func()
		add := func() {
			m := f.start(cfg)
			members, stops = append(members, m), append(stops, m.work())
		}
		remove := func(gone int, crash bool) {
			if crash {
				members[gone].crash()
			} else {
				require.Less(t, members[gone].stop(), 3*time.Second)
			}
			stops[gone]()
			members, stops = slices.Delete(members, gone, gone+1), slices.Delete(stops, gone, gone+1)
		}
		flow := func() {
			t.Helper()
			f.fill(partitions, 100)
			untilShared(f, partitions, members...)
			f.fill(partitions, 100)
		}
		add()
		flow()
		add()
		add()
		add()
		flow()
		remove(0, false)
		remove(1, true)
		flow()
		remove(0, false)
		flow()
		f.untilAllCommitted()
		submitted := 0
		for _, m := range f.members {
			submitted += len(m.sink.all())
		}
		t.Logf("%d changes, submitted %d times", partitions*800, submitted)
		stops[0]()
		members[0].stop()
	}
	protocols(t, test)
	t.Run(consumer.ProtocolEager, func(t *testing.T) { test(t, consumer.ProtocolEager) })
}

// A has changes in flight, loses the partition to B, and gets it back: what is
// completed for the first assignment does not count for the second.
func TestPartitionThatComesBack(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		f := newFixture(t, 4)
		f.fill(4, 3)
		cfg := f.config()
		cfg.GroupProtocol = protocol
		a := f.start(cfg)
		first := a.untilSubmitted(12)
		b := f.start(cfg)
		untilShared(f, 4, a, b)
		moved := b.partitions()
		b.stop()
		untilShared(f, 4, a)
		a.untilSubmitted(12 + 3*len(moved))
		for _, c := range first {
			require.Equal(t, slices.Contains(moved, c.Source.Partition), c.Assignment.Dropped())
		}
		f.complete(first...)
		for p := range int32(4) {
			if !slices.Contains(moved, p) {
				f.untilCommitted(p, 3)
			}
		}
		for _, p := range moved {
			require.Zero(t, f.committedAt(p), "partition %d", p)
		}
		f.untilFlow(a)
		a.stop()
	})
}

// The network of A fails for longer than the session: B takes over, and A, once
// it is heard again, loses what it had and commits nothing for it.
func TestKickedForSilence(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		f := newFixture(t, 2)
		f.fill(2, 10)
		cfg := f.config()
		cfg.GroupProtocol = protocol
		a := f.start(cfg)
		first := a.untilSubmitted(20)
		a.dialer.cut()
		b := f.start(cfg)
		untilShared(f, 2, b)
		f.untilFlow(b) // commits beyond what A could
		for _, c := range first {
			c.Assignment.Done(c.Position)
		}
		a.dialer.heal()
		untilShared(f, 2, a, b)
		require.True(t, first[0].Assignment.Dropped())
		f.fill(2, 10)
		f.untilFlow(a, b)
		require.Len(t, a.sink.all(), 20+10, "it works on what it has now")
		a.stop()
		b.stop()
	})
}

// Somebody removes the member from the group.
func TestRemovedByAnOperator(t *testing.T) {
	f := newFixture(t, 1)
	f.fill(1, 5)
	a := f.start(f.config())
	first := a.untilSubmitted(5)
	groups, err := f.admin.DescribeGroups(t.Context(), f.group)
	require.NoError(t, err)
	require.Len(t, groups[f.group].Members, 1)
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = f.group
	gone := kmsg.NewLeaveGroupRequestMember()
	gone.MemberID = groups[f.group].Members[0].MemberID
	leave.Members = append(leave.Members, gone)
	_, err = leave.RequestWith(t.Context(), f.client)
	require.NoError(t, err)
	a.untilSubmitted(10)
	require.True(t, first[0].Assignment.Dropped())
	f.untilFlow(a)
	a.stop()
}
