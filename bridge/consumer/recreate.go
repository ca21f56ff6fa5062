package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// recreation is a topic that was deleted and created again while we ran.
type recreation struct {
	was, is contract.TopicID
}

// meet remembers the topic's ID and reports whether it is the one that was met
// before. If not, that is fatal: the client does not find its way from the old
// topic to the new one, and everything under way belongs to the old. The caller
// holds mu.
func (c *Consumer) meet(topic string, id contract.TopicID) bool {
	known, met := c.known[topic]
	if !met {
		c.known[topic] = id
		return true
	}
	if known == id {
		return true
	}
	c.recreated[topic] = recreation{was: known, is: id}
	next := "start this process anew to read the new one from its beginning"
	if c.cfg.Recreated == RecreatedStop {
		next = "the new one is not read before the group's offset is set by hand"
	}
	c.fail(fmt.Errorf("topic %s was deleted and created again (ID %s, now %s): %s", topic, known, id, next))
	return false
}

func (c *Consumer) meetAll(infos map[string]topicInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := true
	for name, info := range infos {
		same = c.meet(name, info.id) && same
	}
	return same
}

// markRecreated leaves word of recreated topics in the group's commits. Apache
// Kafka deletes a group's commits with the topic, so without it the next process
// would take the topic for one that the group has never read, and with
// KAFKA_START=latest skip what it holds. What belongs to a topic that is gone is
// dropped first: its offsets mean nothing in the new one.
//
// The mark is a commit at the new topic's beginning. Its metadata names the new
// topic where it is to be read, so that all its partitions start there, and the
// old one where it is not: that is what stops the partitions.
func (c *Consumer) markRecreated(ctx context.Context) {
	c.mu.Lock()
	recreated := maps.Clone(c.recreated)
	c.mu.Unlock()
	if len(recreated) == 0 {
		return
	}
	for _, a := range c.deps.Ledger.Assignments() {
		if _, found := recreated[a.Source().Topic]; found {
			a.Drop()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for {
		err := c.mark(ctx, recreated)
		if err == nil {
			return
		}
		select {
		case <-retry.C: // the group may be rebalancing because of the deletion
		case <-ctx.Done():
			c.log.Error("no word left of recreated topics: a group without commits starts as KAFKA_START says",
				"topics", slices.Sorted(maps.Keys(recreated)), "error", err)
			return
		}
	}
}

// mark commits the marks of partitions that have no commit; one that has was
// marked by another member, or the broker kept it.
func (c *Consumer) mark(ctx context.Context, recreated map[string]recreation) error {
	// The other clients remember the IDs of topics that are gone.
	client, err := kgo.NewClient(c.base...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	commits, err := admin.FetchOffsets(ctx, c.cfg.Group)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(recreated))
	earliest, err := admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = c.cfg.Group
	req.MemberID, req.Generation = c.client.GroupMetadata()
	if c.cfg.InstanceID != "" {
		req.InstanceID = &c.cfg.InstanceID
	}
	for _, name := range names {
		if err := failedFetch(commits[name]); err != nil {
			return err
		}
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = name, recreated[name].is
		word := ledger.Metadata{TopicID: recreated[name].is}
		if c.cfg.Recreated == RecreatedStop {
			word.TopicID = recreated[name].was
		}
		for p, o := range earliest[name] {
			if _, found := commits.Lookup(name, p); found || o.Err != nil {
				continue
			}
			word.Watermark = o.Offset
			partition := kmsg.NewOffsetCommitRequestTopicPartition()
			partition.Partition, partition.Offset, partition.Metadata = p, o.Offset, kmsg.StringPtr(word.Encode())
			topic.Partitions = append(topic.Partitions, partition)
		}
		if len(topic.Partitions) > 0 {
			req.Topics = append(req.Topics, topic)
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}
