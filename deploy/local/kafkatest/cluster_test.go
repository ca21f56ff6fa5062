package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/deploy/local/kafka"
)

// cluster is three nodes that hold everything three times.
type cluster struct {
	t     *testing.T
	seeds []string
	nodes []*kafka.Broker // by ID - 1; nil on kfake
	fake  *kfake.Cluster  // nil on Apache Kafka
	admin *kadm.Client
}

const offsetsTopic = "__consumer_offsets"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	if on.apache {
		c.startApache()
	} else {
		var err error
		c.fake, err = kfake.NewCluster(kfake.NumBrokers(3), kfake.BrokerConfigs(map[string]string{
			"group.consumer.heartbeat.interval.ms": "200", "group.min.session.timeout.ms": "1000",
		}))
		require.NoError(t, err)
		t.Cleanup(c.fake.Close)
		c.seeds = c.fake.ListenAddrs()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.MetadataMinAge(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	c.admin = kadm.NewClient(cl)
	return c
}

func (c *cluster) startApache() {
	nodes, err := kafka.NewCluster(c.t.Context(), kafka.Options{
		Installation: on.installed, Dir: c.t.TempDir(), Heap: "256m",
		Properties: map[string]string{
			"group.consumer.session.timeout.ms": "15000",
			// When leaders move quickly, a follower (4.4.0) may give a partition up
			// until its leader moves again. Without it, and without the node that is
			// killed, one replica is left.
			"min.insync.replicas": "1", "replica.lag.time.max.ms": "3000",
		},
	}, 3)
	require.NoError(c.t, err)
	c.nodes = nodes
	errs := make([]error, len(nodes))
	var starting sync.WaitGroup
	for i, n := range nodes {
		c.seeds = append(c.seeds, n.Addr(kafka.Plain))
		starting.Go(func() { errs[i] = n.Start(c.t.Context()) })
	}
	starting.Wait()
	c.t.Cleanup(func() {
		for i, n := range nodes {
			if n.Done() == nil {
				continue // was never started
			}
			require.NoError(c.t, n.Kill())
			if c.t.Failed() {
				c.t.Logf("node %d:\n%s", i+1, n.LogTail())
			}
		}
	})
	for _, err := range errs {
		require.NoError(c.t, err)
	}
}

// until waits until the condition holds.
func (c *cluster) until(what string, holds func(ctx context.Context) bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	for !holds(ctx) {
		if ctx.Err() != nil {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *cluster) leader(ctx context.Context, topic string, partition int32) int32 {
	topics, err := c.admin.ListTopicsWithInternal(ctx, topic)
	if err != nil || topics[topic].Err != nil || topics[topic].Partitions[partition].Err != nil {
		return -1
	}
	return topics[topic].Partitions[partition].Leader
}

// coordinator returns the node that coordinates the group.
func (c *cluster) coordinator(group string) int32 {
	if c.fake != nil {
		return c.fake.CoordinatorFor(group)
	}
	return c.leader(c.t.Context(), offsetsTopic, 0)
}

// untilInSync waits until no partition hangs on one replica.
func (c *cluster) untilInSync(topics ...string) {
	c.t.Helper()
	if c.fake != nil {
		return
	}
	c.until("two replicas in sync", func(ctx context.Context) bool {
		details, err := c.admin.ListTopicsWithInternal(ctx, topics...)
		if err != nil {
			return false
		}
		for _, topic := range details {
			for _, p := range topic.Partitions {
				if p.Err != nil || len(p.ISR) < 2 {
					return false
				}
			}
		}
		return true
	})
}

// moveCoordinator makes another node the group's coordinator.
func (c *cluster) moveCoordinator(group string) {
	c.t.Helper()
	if c.fake == nil {
		c.moveLeaders(offsetsTopic, 1)
		return
	}
	for before := c.coordinator(group); c.coordinator(group) == before; {
		c.fake.RehashCoordinators()
	}
}

// moveLeaders makes another replica the leader of each of the topic's partitions:
// it becomes the preferred one, and the preferred one is elected.
func (c *cluster) moveLeaders(topic string, partitions int) {
	c.t.Helper()
	moves, elect, next := kadm.AlterPartitionAssignmentsReq{}, kadm.TopicsSet{}, make([]int32, partitions)
	for p := range int32(partitions) {
		before := c.leader(c.t.Context(), topic, p)
		if c.fake != nil {
			require.NoError(c.t, c.fake.MoveTopicPartition(topic, p, (before+1)%3))
			continue
		}
		next[p] = before%3 + 1
		moves.Assign(topic, p, []int32{next[p], next[p]%3 + 1, (next[p]+1)%3 + 1})
		elect.Add(topic, p)
	}
	if c.fake != nil {
		return
	}
	moved, err := c.admin.AlterPartitionAssignments(c.t.Context(), moves)
	require.NoError(c.t, err)
	require.NoError(c.t, moved.Error())
	c.until("other leaders", func(ctx context.Context) bool {
		if _, err := c.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, elect); err != nil {
			return false
		}
		for p, leader := range next {
			if c.leader(ctx, topic, int32(p)) != leader {
				return false
			}
		}
		return true
	})
}

// kill ends a node with SIGKILL; kfake just forgets it.
func (c *cluster) kill(node int32) {
	c.t.Helper()
	if c.fake != nil {
		require.NoError(c.t, c.fake.RemoveNode(node))
		return
	}
	require.NoError(c.t, c.nodes[node-1].Kill())
}

// commits returns all commits of the group, by topic and partition, in the order
// in which the coordinators took them: their log.
func (c *cluster) commits(group string) map[string][]int64 {
	c.t.Helper()
	ends, err := c.admin.ListEndOffsets(c.t.Context(), offsetsTopic)
	require.NoError(c.t, err)
	end, _ := ends.Lookup(offsetsTopic, 0)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{offsetsTopic: {0: kgo.NewOffset().AtStart()}}))
	require.NoError(c.t, err)
	defer cl.Close()
	commits := make(map[string][]int64)
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(c.t.Context())
		require.NoError(c.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			var key kmsg.OffsetCommitKey
			var value kmsg.OffsetCommitValue
			if key.ReadFrom(r.Key) != nil || key.Version > 1 || key.Group != group || value.ReadFrom(r.Value) != nil {
				return
			}
			partition := fmt.Sprintf("%s/%d", key.Topic, key.Partition)
			commits[partition] = append(commits[partition], value.Offset)
		})
	}
	return commits
}

// While changes flow, the groups' coordinator moves to another node in order, so
// do the leaders of the partitions, and then the coordinator's node is killed,
// which leads partitions as well. Nothing is lost, and no group is rebalanced
// for an orderly move.
func TestCoordinatorAndLeadersMove(t *testing.T) {
	const partitions = 6
	c := newCluster(t)
	type group struct {
		*fixture
		protocol string
		a, b     *member
		stops    []func()
	}
	var groups []*group
	for _, protocol := range []string{consumer.ProtocolClassic, consumer.ProtocolEager, consumer.ProtocolConsumer} {
		g := &group{fixture: newFixtureAt(t, c.seeds, partitions), protocol: protocol}
		g.staleReads = on.apache
		cfg := g.config()
		cfg.GroupProtocol, cfg.SessionTimeout = protocol, 15*time.Second
		g.a, g.b = g.start(cfg), g.start(cfg)
		groups = append(groups, g)
	}
	for _, g := range groups {
		untilShared(g.fixture, partitions, g.a, g.b)
		g.stops = []func(){g.feed(partitions), g.a.work(), g.b.work()}
	}
	for _, g := range groups {
		g.until("fed", func() bool { return len(g.a.sink.all())+len(g.b.sink.all()) > 100 })
	}
	rebalances := func() map[string]int64 {
		n := make(map[string]int64)
		for _, g := range groups {
			n[g.protocol] = g.a.counts.get("bridge.rebalances") + g.b.counts.get("bridge.rebalances")
		}
		return n
	}
	// flow waits until what has been produced so far is committed.
	flow := func(event string) {
		t.Helper()
		began := time.Now()
		for _, g := range groups {
			ends := g.ends()
			g.untilPassed("committed after "+event, func() map[int32]int64 { return ends })
		}
		t.Logf("%s: committed within %s", event, time.Since(began).Round(time.Millisecond))
	}
	before := rebalances()
	for range 2 {
		was := c.coordinator(groups[0].group)
		c.moveCoordinator(groups[0].group)
		require.NotEqual(t, was, c.coordinator(groups[0].group))
		flow("the coordinator moved")
		for _, g := range groups {
			c.moveLeaders(g.topic, partitions)
		}
		flow("the leaders moved")
	}
	require.Equal(t, before, rebalances())

	c.untilInSync(offsetsTopic, groups[0].topic, groups[1].topic, groups[2].topic)
	dead := c.coordinator(groups[0].group)
	c.kill(dead)
	c.until("another coordinator", func(context.Context) bool {
		now := c.coordinator(groups[0].group)
		return now >= 0 && now != dead
	})
	flow("the coordinator's node was killed")
	t.Logf("rebalances before %v and after it was killed %v", before, rebalances())
	for _, g := range groups {
		untilShared(g.fixture, partitions, g.a, g.b)
		g.stops[0]()
		g.untilAllCommitted()
		g.stops[1]()
		g.stops[2]()
		g.a.stop()
		g.b.stop()
		n := 0
		for _, produced := range g.produced {
			n += len(produced)
		}
		t.Logf("%s: %d changes, submitted %d times", g.protocol, n, len(g.a.sink.all())+len(g.b.sink.all()))
		if !on.apache {
			continue // it keeps no such log; the watcher has looked
		}
		commits := c.commits(g.group)
		require.Len(t, commits, partitions)
		n = 0
		for partition, offsets := range commits {
			require.True(t, slices.IsSorted(offsets), "%s: %v", partition, offsets)
			n += len(offsets)
		}
		t.Logf("%s: %d commits in the coordinators' log, none goes back", g.protocol, n)
	}
}
