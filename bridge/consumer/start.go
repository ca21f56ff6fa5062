package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// topicInfo is what a broker says of a topic.
type topicInfo struct {
	id         contract.TopicID
	partitions int32
}

// topics asks the brokers, not a cache, for the topics' IDs and partitions.
// Topics that do not exist are missing from the answer.
func (c *Consumer) topics(ctx context.Context, names []string) (map[string]topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.admin)
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
			infos[*t.Topic] = topicInfo{id: t.TopicID, partitions: int32(len(t.Partitions))}
		}
	}
	return infos, nil
}

func (c *Consumer) refused(err error) error {
	return fmt.Errorf("KAFKA_SASL_MECHANISM=%s: %s refuses the credentials: %w", c.cfg.SASLMechanism, strings.Join(c.cfg.Brokers, ","), err)
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
	wait, cancel := context.WithTimeout(ctx, c.cfg.StartTimeout)
	defer cancel()
	retry := time.NewTicker(500 * time.Millisecond)
	defer retry.Stop()
	var last error
	for {
		infos, err := c.topics(wait, slices.Sorted(maps.Keys(needed)))
		switch {
		case err == nil:
			last = nil
			for topic, variable := range needed {
				if _, found := infos[topic]; !found {
					last = errors.Join(last, fmt.Errorf("%s: topic %q does not exist at %s", variable, topic, strings.Join(c.cfg.Brokers, ",")))
				}
			}
			if last == nil {
				return nil
			}
		case errors.Is(err, kerr.SaslAuthenticationFailed):
			last = c.refused(err)
		case wait.Err() == nil || last == nil:
			last = fmt.Errorf("KAFKA_BROKERS: no answer from %s: %w", strings.Join(c.cfg.Brokers, ","), err)
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
