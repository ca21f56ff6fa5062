package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/consumer"
)

// groupState returns the state of the group and how many members it has.
func (f *fixture) groupState(protocol string) (state string, members int) {
	f.t.Helper()
	if protocol != consumer.ProtocolConsumer {
		groups, err := f.admin.DescribeGroups(f.t.Context(), f.group)
		require.NoError(f.t, err)
		return groups[f.group].State, len(groups[f.group].Members)
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{f.group}
	resp, err := req.RequestWith(f.t.Context(), f.client)
	require.NoError(f.t, err)
	require.Len(f.t, resp.Groups, 1)
	return resp.Groups[0].State, len(resp.Groups[0].Members)
}

// A member that does not give up its partition holds up the rebalance; ours
// leaves all the same.
func TestCloseDuringARebalance(t *testing.T) {
	for protocol, balancer := range map[string]kgo.Opt{
		consumer.ProtocolClassic:  kgo.Balancers(kgo.CooperativeStickyBalancer()),
		consumer.ProtocolEager:    kgo.Balancers(kgo.RangeBalancer()),
		consumer.ProtocolConsumer: kgo.ServerSideBalancer(),
	} {
		t.Run(protocol, func(t *testing.T) {
			f := newFixture(t, 6)
			f.fill(6, 5)
			cfg := f.config()
			cfg.GroupProtocol = protocol
			a := f.start(cfg)
			a.untilAssigned(6)
			stuck, err := kgo.NewClient(kgo.SeedBrokers(f.seeds...), kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(f.topic), kgo.DisableAutoCommit(), balancer,
				kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond))
			require.NoError(t, err)
			defer stuck.CloseAllowingRebalance()
			f.until("the other has its share", func() bool { return len(a.partitions()) == 3 })
			stuck.PollFetches(t.Context()) // and does not allow rebalances from here on

			joining := f.start(cfg)
			state, members := "", 0
			f.until("rebalancing", func() bool {
				state, members = f.groupState(protocol)
				return members == 3 && (state == "PreparingRebalance" || state == "Reconciling")
			})
			took := a.stop()
			require.Less(t, took, 10*time.Second)
			t.Logf("left in %s, when the group was %s", took.Round(time.Millisecond), state)
			_, members = f.groupState(protocol)
			require.Equal(t, 2, members, "the one that is stuck and the one that joins")
			stuck.CloseAllowingRebalance()
			untilShared(f, 6, joining)
			f.untilFlow(joining)
			joining.stop()
		})
	}
}
