package where

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Kafka looks records up without joining the group.
type Kafka struct {
	Options []kgo.Opt // how to reach the brokers
	Group   string
	// DeadLetters is the dead-letter topic; empty: none.
	DeadLetters string
}

// partition is what Kafka tells of the record and around it.
type partition struct {
	topicID    contract.TopicID
	start, end int64
	committed  int64 // -1: none
	metadata   ledger.Metadata
	// record is nil where nothing is at the offset.
	record *kgo.Record
}

// beyond reports whether the commit says of the offset that it is done although
// something before it is not.
func (p partition) beyond(offset int64) bool {
	for _, r := range p.metadata.Runs {
		if r.First <= offset && offset <= r.Last {
			return true
		}
	}
	return false
}

func (k Kafka) look(ctx context.Context, r Record) (partition, error) {
	client, err := kgo.NewClient(k.Options...)
	if err != nil {
		return partition{}, fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, r.Topic)
	if err != nil {
		return partition{}, fmt.Errorf("topic %s: %w", r.Topic, err)
	}
	topic := topics[r.Topic]
	if topic.Err != nil {
		return partition{}, fmt.Errorf("topic %s: %w", r.Topic, topic.Err)
	}
	if _, found := topic.Partitions[r.Partition]; !found {
		return partition{}, fmt.Errorf("topic %s has %d partitions, there is no %d", r.Topic, len(topic.Partitions), r.Partition)
	}
	p := partition{topicID: contract.TopicID(topic.ID), committed: -1}
	starts, err := admin.ListStartOffsets(ctx, r.Topic)
	if err = errors.Join(err, starts.Error()); err != nil {
		return partition{}, fmt.Errorf("start offsets of %s: %w", r.Topic, err)
	}
	ends, err := admin.ListEndOffsets(ctx, r.Topic)
	if err = errors.Join(err, ends.Error()); err != nil {
		return partition{}, fmt.Errorf("end offsets of %s: %w", r.Topic, err)
	}
	p.start, p.end = starts[r.Topic][r.Partition].Offset, ends[r.Topic][r.Partition].Offset
	commit, found, err := k.commit(ctx, admin, r)
	if err != nil {
		return partition{}, err
	}
	if found {
		p.committed = commit.At
		if m, err := ledger.Decode(commit.Metadata); err == nil && m.TopicID == p.topicID && m.Watermark == commit.At {
			p.metadata = m
		}
	}
	if r.Offset >= p.start && r.Offset < p.end {
		p.record, err = k.read(ctx, r)
	}
	return p, err
}

// commit returns the group's commit for the record's partition. One that cannot be
// read is an error: it is not the same as none.
func (k Kafka) commit(ctx context.Context, admin *kadm.Client, r Record) (commit kadm.OffsetResponse, found bool, err error) {
	commits, err := admin.FetchOffsets(ctx, k.Group)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound): // it has committed nothing
		return kadm.OffsetResponse{}, false, nil
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return kadm.OffsetResponse{}, false, fmt.Errorf("committed offsets of group %s: grant this client DESCRIBE on the group, or ask a bridge with --status: %w", k.Group, err)
	case err != nil:
		return kadm.OffsetResponse{}, false, fmt.Errorf("committed offsets of group %s: try again once its coordinator answers, or ask a bridge with --status: %w", k.Group, err)
	}
	commit, found = commits.Lookup(r.Topic, r.Partition)
	if found && commit.Err != nil {
		return kadm.OffsetResponse{}, false, fmt.Errorf("committed offset of group %s in %s/%d: try again, or ask a bridge with --status: %w", k.Group, r.Topic, r.Partition, commit.Err)
	}
	return commit, found, nil
}

// read returns the record at the offset, or nil if there is none.
func (k Kafka) read(ctx context.Context, r Record) (*kgo.Record, error) {
	client, err := kgo.NewClient(append(k.Options, kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(r.Offset)}}))...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", r, err)
		}
		for _, record := range fetches.Records() {
			if record.Offset == r.Offset && !record.Attrs.IsControl() {
				return record, nil
			}
			return nil, nil // what comes next lies beyond
		}
	}
}

// deadLetter returns the dead letter that the record became, or nil. It reads
// the dead-letter topic from the record's time on.
func (k Kafka) deadLetter(ctx context.Context, r Record, from time.Time) (*kgo.Record, error) {
	if k.DeadLetters == "" {
		return nil, nil
	}
	client, err := kgo.NewClient(k.Options...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	starts, err := admin.ListOffsetsAfterMilli(ctx, from.UnixMilli(), k.DeadLetters)
	if err = errors.Join(err, starts.Error()); err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", k.DeadLetters, err)
	}
	ends, err := admin.ListEndOffsets(ctx, k.DeadLetters)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", k.DeadLetters, err)
	}
	assignment, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for p, start := range starts[k.DeadLetters] {
		if end := ends[k.DeadLetters][p].Offset; start.Offset >= 0 && start.Offset < end {
			assignment[p], left[p] = kgo.NewOffset().At(start.Offset), end
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	reader, err := kgo.NewClient(append(k.Options, kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.DeadLetters: assignment}))...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer reader.Close()
	for len(left) > 0 {
		fetches := reader.PollRecords(ctx, 1000)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", k.DeadLetters, err)
		}
		for _, letter := range fetches.Records() {
			if isLetterOf(letter, r) {
				return letter, nil
			}
			if letter.Offset+1 >= left[letter.Partition] {
				delete(left, letter.Partition)
			}
		}
	}
	return nil, nil
}

func isLetterOf(letter *kgo.Record, r Record) bool {
	return header(letter, consumer.HeaderTopic) == r.Topic &&
		header(letter, consumer.HeaderPartition) == strconv.Itoa(int(r.Partition)) &&
		header(letter, consumer.HeaderOffset) == strconv.FormatInt(r.Offset, 10)
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
