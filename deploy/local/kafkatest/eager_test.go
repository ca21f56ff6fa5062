package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/consumer"
)

// A group of clients that know eager range only is moved over while changes
// flow, as docs/kafka.md says: a classic bridge is refused; bridges with eager
// join, the old clients leave, and the bridges are restarted one by one with
// classic, which makes the group cooperative.
func TestMoveFromAnEagerGroup(t *testing.T) {
	const partitions = 6
	f := newFixture(t, partitions)
	protocol := func() string {
		groups, err := f.admin.DescribeGroups(t.Context(), f.group)
		require.NoError(t, err)
		return groups[f.group].Protocol
	}
	cfg := f.config()
	members, stops := map[string]*member{}, map[string]func(){}
	start := func(name, protocol string) {
		cfg.GroupProtocol = protocol
		m := f.start(cfg)
		members[name], stops[name] = m, m.work()
	}
	stop := func(name string) {
		require.Less(t, members[name].stop(), 3*time.Second)
		stops[name]()
		delete(members, name)
	}
	shared := func() {
		t.Helper()
		var all []*member
		for _, m := range members {
			all = append(all, m)
		}
		untilShared(f, partitions, all...)
	}

	f.options = []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
	start("old-0", consumer.ProtocolClassic)
	start("old-1", consumer.ProtocolClassic)
	f.options = nil
	stopFeeding := f.feed(partitions)
	shared()

	cfg.GroupProtocol = consumer.ProtocolClassic
	refused := f.start(cfg)
	<-refused.ended
	require.ErrorIs(t, refused.err, kerr.InconsistentGroupProtocol)
	require.ErrorContains(t, refused.err, "KAFKA_GROUP_PROTOCOL=classic")
	require.ErrorContains(t, refused.err, "set eager")
	t.Log(refused.err)

	start("bridge-0", consumer.ProtocolEager)
	start("bridge-1", consumer.ProtocolEager)
	shared()
	stop("old-0")
	stop("old-1")
	shared()
	require.Equal(t, "range", protocol())

	for _, name := range []string{"bridge-0", "bridge-1"} {
		stop(name)
		start(name, consumer.ProtocolClassic)
		shared()
		require.Equal(t, "cooperative-sticky", protocol())
	}
	stopFeeding()
	f.untilAllCommitted()
	stop("bridge-0")
	stop("bridge-1")
}
