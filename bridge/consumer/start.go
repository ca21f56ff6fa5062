package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// topicInfo is what a broker says of a topic.
type topicInfo struct {
	id         contract.TopicID
	partitions int32
	allowed    int32 // operations that we may do, one bit each; math.MinInt32 where the broker does not say
}

// topics asks the brokers, not a cache, for the topics' IDs and partitions.
// Topics that do not exist are missing from the answer.
func (c *Consumer) topics(ctx context.Context, names []string) (map[string]topicInfo, error) {
	return askTopics(ctx, c.admin, names)
}

func askTopics(ctx context.Context, client *kgo.Client, names []string) (map[string]topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("topic metadata: %w", err)
	}
	infos := make(map[string]topicInfo)
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
		case err != nil:
			return nil, fmt.Errorf("topic %s: %w", *t.Topic, err)
		default:
			infos[*t.Topic] = topicInfo{id: t.TopicID, partitions: int32(len(t.Partitions)), allowed: t.AuthorizedOperations}
		}
	}
	return infos, nil
}

// checkStart waits until the brokers answer and the topics are there, for at
// most START_TIMEOUT: a mistake must show at once, not as a consumer that idles.
// It returns nil as well once ctx is done.
func (c *Consumer) checkStart(ctx context.Context) error {
	needed := map[string]string{} // topic → variable that names it
	if c.cfg.Intake.DeadLetterTopic != "" {
		needed[c.cfg.Intake.DeadLetterTopic] = "DEAD_LETTER_TOPIC"
	}
	for _, t := range c.cfg.Topics {
		needed[t] = "KAFKA_TOPICS"
	}
	// A client that tries again by itself would have spent the time when it ends,
	// and know no reason but that.
	client, err := kgo.NewClient(append(slices.Clone(c.base), kgo.RequestRetries(0))...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	wait, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	retry := time.NewTicker(500 * time.Millisecond)
	defer retry.Stop()
	var last error
	told := false
	for {
		infos, err := askTopics(wait, client, slices.Sorted(maps.Keys(needed)))
		switch {
		case err == nil:
			if last = c.unusable(needed, infos); last == nil {
				c.reach(nil)
				return nil
			}
		case last == nil || !timedOut(err): // that time is up is the least of reasons
			last = c.explain(err)
		}
		c.reach(last)
		if !told && ctx.Err() == nil {
			told = true
			c.log.Warn("waiting for Kafka", "error", last)
		}
		select {
		case <-retry.C:
		case <-wait.Done():
			if ctx.Err() != nil {
				return nil // asked to stop
			}
			return fmt.Errorf("%w (waited %s)", last, c.cfg.StartTimeout)
		}
	}
}

// unusable names the topics that are missing, or that we may not use.
func (c *Consumer) unusable(needed map[string]string, infos map[string]topicInfo) (faults error) {
	for _, topic := range slices.Sorted(maps.Keys(needed)) {
		variable := needed[topic]
		info, found := infos[topic]
		operation := kmsg.ACLOperationRead
		if variable == "DEAD_LETTER_TOPIC" {
			operation = kmsg.ACLOperationWrite
		}
		switch {
		case !found:
			faults = errors.Join(faults, fmt.Errorf("%s: topic %q does not exist at %s: create it, or name another", variable, topic, c.where()))
		case variable == "KAFKA_TOPICS" && info.id == contract.TopicID{}:
			// What offsets mean ends with the topic, and only its ID tells.
			faults = errors.Join(faults, fmt.Errorf("%s: topic %q at %s has no topic ID: use brokers that give one (Apache Kafka 2.8 or later)", variable, topic, c.where()))
		case info.allowed != math.MinInt32 && info.allowed&(1<<operation) == 0:
			faults = errors.Join(faults, fmt.Errorf("%s: topic %q at %s: %s may not %s it: grant that", variable, topic, c.where(), c.who(), operation))
		}
	}
	return faults
}

func timedOut(err error) bool {
	timeout := net.Error(nil)
	return errors.As(err, &timeout) && timeout.Timeout()
}
