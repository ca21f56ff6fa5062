package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The coordinator of the group and the leaders of its partitions move from node
// to node, and the coordinator's node is taken away, while changes flow: every
// change comes, and the group is not even rebalanced.
func TestCoordinatorAndLeadersMove(t *testing.T) {
	for _, protocol := range []string{ProtocolClassic, ProtocolEager, ProtocolConsumer} {
		t.Run(protocol, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *kafka) {
				s := k.config("four")
				s.GroupProtocol, s.auto = protocol, true
				a, b := k.start(s), k.start(s)
				k.until("shared", func() bool { return len(partitionsOf(a)) == 2 && len(partitionsOf(b)) == 2 })
				rebalances := func() int64 { return a.counts.get("bridge.rebalances") + b.counts.get("bridge.rebalances") }
				before, coordinators, epochs := rebalances(), map[int32]bool{}, map[int32]bool{}
				const rounds = 12
				for round := range rounds {
					switch round % 3 {
					case 0:
						k.cluster.RehashCoordinators()
					case 1:
						k.cluster.ShufflePartitionLeaders()
					case 2:
						node := k.cluster.CoordinatorFor("group")
						require.NoError(t, k.cluster.RemoveNode(node))
						_, _, err := k.cluster.AddNode(-1, 9010+round)
						require.NoError(t, err)
					}
					coordinators[k.cluster.CoordinatorFor("group")] = true
					for p := range int32(4) {
						k.produce(&kgo.Record{Topic: "four", Partition: p, Key: fmt.Appendf(nil, "%d:%d", p, round)})
					}
					time.Sleep(700 * time.Millisecond)
				}
				for p := range int32(4) {
					k.untilCommitted("four", p, rounds)
				}
				accounts := map[string]int{}
				for _, c := range append(a.sink.all(), b.sink.all()...) {
					accounts[c.Account]++
					epochs[c.Position.Epoch] = true
				}
				require.Len(t, accounts, 4*rounds)
				require.Greater(t, len(coordinators), 2, "it has moved")
				require.Greater(t, len(epochs), 2, "the leaders have moved")
				require.Equal(t, before, rebalances())
				a.stop()
				b.stop()
				k.neverBackwards()
			}, kfake.NumBrokers(3), kfake.Ports(9001, 9002, 9003))
		})
	}
}
