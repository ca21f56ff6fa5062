package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/quiesce-io/quiesce/bridge/ledger"
)

// committer serialises commits. A commit that failed is not kept: the next one
// asks the ledger anew, so a stale offset can never be sent after a later one.
// One token: whoever holds it commits; a channel, so that waiting can end.
type committer chan struct{}

func (c *Consumer) commitLoop(ctx context.Context) {
	tick := time.NewTicker(c.cfg.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.commit(ctx, c.deps.Ledger.Assignments())
			c.deps.CommitTurn()
		case <-ctx.Done():
			return
		}
	}
}

// commit commits what the assignments have to commit, and waits for its turn and
// the answer, together at most commitTimeout.
func (c *Consumer) commit(ctx context.Context, assignments []*ledger.Assignment) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	select {
	case c.commits <- struct{}{}:
		defer func() { <-c.commits }()
	case <-ctx.Done():
		return
	}
	wanted := make(map[partitionKey]ledger.Commit)
	owners := make(map[partitionKey]*ledger.Assignment)
	for _, a := range assignments {
		if commit, changed := a.Pending(); changed {
			key := partitionKey{a.Source().Topic, a.Source().Partition}
			wanted[key], owners[key] = commit, a
		}
	}
	if len(wanted) == 0 {
		return
	}
	failed := c.send(ctx, wanted)
	for key, commit := range wanted {
		err := failed[key]
		if err == nil {
			owners[key].Committed(commit)
			continue
		}
		if errors.Is(err, kerr.OffsetMetadataTooLarge) {
			owners[key].RefuseMetadata()
		}
		if parent.Err() == nil && c.seldom.now("commit") {
			c.log.Warn("commit", "topic", key.topic, "partition", key.partition, "offset", commit.Next.Offset,
				"committed", len(wanted)-len(failed), "not_committed", len(failed), "error", err)
		}
		if fatal := c.fatal(err); fatal != nil {
			c.fail(fatal)
		}
	}
	c.deps.Buffer.Wake()
	c.deps.Metrics.Count("bridge.commits", int64(len(wanted)-len(failed)), "outcome:ok")
	if len(failed) > 0 {
		c.deps.Metrics.Count("bridge.commits", int64(len(failed)), "outcome:error")
	}
}

var errNotAnswered = errors.New("the broker did not answer for this partition")

// send commits as the present group member and returns the errors of those
// partitions that were not committed.
func (c *Consumer) send(ctx context.Context, wanted map[partitionKey]ledger.Commit) map[partitionKey]error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	failed := make(map[partitionKey]error)
	for key, commit := range wanted {
		if offsets[key.topic] == nil {
			offsets[key.topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[key.topic][key.partition] = kgo.EpochOffset{Epoch: commit.Next.Epoch, Offset: commit.Next.Offset}
		failed[key] = errNotAnswered
	}
	// By default the client writes the member ID into the metadata.
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				t.Partitions[j].Metadata = kmsg.StringPtr(wanted[partitionKey{t.Topic, t.Partitions[j].Partition}].Metadata)
			}
		}
		return nil
	})
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			for key := range failed {
				failed[key] = err
			}
			return
		}
		names := make(map[[16]byte]string) // from version 10 on, answers name the ID only
		for _, t := range req.Topics {
			names[t.TopicID] = t.Topic
		}
		for _, t := range resp.Topics {
			name := t.Topic
			if name == "" {
				name = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				key := partitionKey{name, p.Partition}
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failed[key] = err
				} else {
					delete(failed, key)
				}
			}
		}
	})
	return failed
}
