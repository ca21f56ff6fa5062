package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Kafka reads what the pipeline's group committed and what the records say. It
// never joins the group and never commits.
type Kafka struct {
	Group      string
	Topics     []string
	DeadLetter string // topic of dead letters; "" for none
	Intake     *intake.Intake
	Options    []kgo.Opt // how to reach the brokers
}

// Change is a record as far as an audit needs it.
type Change struct {
	Source   contract.Source   `json:"source"`
	Position contract.Position `json:"position"`
	Account  string            `json:"account,omitempty"` // "" for a bad record
	Bad      string            `json:"bad,omitempty"`     // why no account can be derived
	Time     time.Time         `json:"time"`              // the record's own timestamp
}

// String returns topic/partition/offset.
func (c Change) String() string { return fmt.Sprintf("%s/%d", c.Source, c.Position.Offset) }

// ErrNoRecord says that Kafka does not have the record, or no longer.
var ErrNoRecord = errors.New("Kafka has no such record: retention or compaction has dropped it, or it was never there")

// partition is a partition by name.
type partition struct {
	topic  string
	number int32
}

// bounds are the offsets of one partition that are to be read.
type bounds struct{ from, to int64 } // [from, to)

// Committed returns the group's committed offset of each partition of the
// topics. Partitions without a commit are left out.
func (k *Kafka) Committed(ctx context.Context) (map[string]map[int32]int64, error) {
	admin, err := k.admin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	responses, err := admin.FetchOffsets(ctx, k.Group)
	if err != nil {
		return nil, fmt.Errorf("read the offsets of group %s: %w", k.Group, err)
	}
	committed := map[string]map[int32]int64{}
	responses.Each(func(r kadm.OffsetResponse) {
		if r.At < 0 || r.Err != nil {
			return
		}
		if committed[r.Topic] == nil {
			committed[r.Topic] = map[int32]int64{}
		}
		committed[r.Topic][r.Partition] = r.At
	})
	return committed, nil
}

// Record reads one record.
func (k *Kafka) Record(ctx context.Context, topic string, number int32, offset int64) (Change, error) {
	admin, err := k.admin()
	if err != nil {
		return Change{}, err
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	ends, errEnds := admin.ListCommittedOffsets(ctx, topic)
	admin.Close()
	if err := errors.Join(err, errEnds); err != nil {
		return Change{}, fmt.Errorf("offsets of %s: %w", topic, err)
	}
	start, known := starts.Lookup(topic, number)
	end, _ := ends.Lookup(topic, number)
	if !known || offset < start.Offset || offset >= end.Offset {
		return Change{}, ErrNoRecord
	}
	var found *Change
	err = k.read(ctx, map[partition]bounds{{topic, number}: {offset, offset + 1}}, func(r *kgo.Record, id contract.TopicID) error {
		if c, ok := k.change(r, id); ok {
			found = &c
		}
		return nil
	})
	if err == nil && found == nil {
		err = ErrNoRecord
	}
	if err != nil {
		return Change{}, err
	}
	return *found, nil
}

// Window calls f for every change (filtered records are none) of the window
// whose offset is committed, by the record's timestamp.
func (k *Kafka) Window(ctx context.Context, w Window, committed map[string]map[int32]int64, f func(Change) error) error {
	ranges, err := k.inWindow(ctx, w, k.Topics)
	if err != nil {
		return err
	}
	for p, b := range ranges {
		if b.to = min(b.to, committed[p.topic][p.number]); b.from < b.to {
			ranges[p] = b
		} else {
			delete(ranges, p)
		}
	}
	return k.read(ctx, ranges, func(r *kgo.Record, id contract.TopicID) error {
		c, ok := k.change(r, id)
		if !ok || !w.Contains(c.Time) {
			return nil
		}
		return f(c)
	})
}

// DeadLetters returns the records that have been a dead letter since the
// window began, as topic/partition/offset.
func (k *Kafka) DeadLetters(ctx context.Context, w Window) (map[string]bool, error) {
	letters := map[string]bool{}
	if k.DeadLetter == "" {
		return letters, nil
	}
	ranges, err := k.inWindow(ctx, w, []string{k.DeadLetter})
	if err != nil {
		return nil, err
	}
	err = k.read(ctx, ranges, func(r *kgo.Record, _ contract.TopicID) error {
		var whence [3]string
		for _, h := range r.Headers {
			for i, name := range []string{consumer.HeaderTopic, consumer.HeaderPartition, consumer.HeaderOffset} {
				if h.Key == name {
					whence[i] = string(h.Value)
				}
			}
		}
		letters[strings.Join(whence[:], "/")] = true
		return nil
	})
	return letters, err
}

// inWindow returns the offsets from the first record at or after the window's
// beginning to the end of what can be read now: timestamps need not ascend.
func (k *Kafka) inWindow(ctx context.Context, w Window, topics []string) (map[partition]bounds, error) {
	admin, err := k.admin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	from, err := admin.ListOffsetsAfterMilli(ctx, w.Since.UnixMilli(), topics...)
	if err == nil {
		err = from.Error()
	}
	to, errEnd := admin.ListCommittedOffsets(ctx, topics...)
	if errEnd == nil {
		errEnd = to.Error()
	}
	if err := errors.Join(err, errEnd); err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	ranges := map[partition]bounds{}
	from.Each(func(o kadm.ListedOffset) {
		end, _ := to.Lookup(o.Topic, o.Partition)
		if o.Offset >= 0 && o.Offset < end.Offset {
			ranges[partition{o.Topic, o.Partition}] = bounds{o.Offset, end.Offset}
		}
	})
	return ranges, nil
}

// silence is how long records may fail to come, where there are some.
const silence = 30 * time.Second

// read calls f for every record in the ranges, control records included, with
// the topic's ID. It returns once a record at or beyond the last offset of each
// range has been seen: compaction spares the newest record of a partition, so
// there is one.
func (k *Kafka) read(ctx context.Context, ranges map[partition]bounds, f func(*kgo.Record, contract.TopicID) error) error {
	if len(ranges) == 0 {
		return nil
	}
	from := map[string]map[int32]kgo.Offset{}
	for p, b := range ranges {
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][p.number] = kgo.NewOffset().At(b.from)
	}
	// Control records are kept: one of them may be the last of a range.
	client, err := kgo.NewClient(append(k.Options, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxBytes(8<<20))...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics := make([]string, 0, len(from))
	for topic := range from {
		topics = append(topics, topic)
	}
	listed, err := admin.ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("topics %s: %w", strings.Join(topics, ", "), err)
	}
	left := len(ranges)
	done := map[partition]bool{}
	for left > 0 {
		polling, cancel := context.WithTimeout(ctx, silence)
		fetches := client.PollFetches(polling)
		silent := polling.Err() != nil
		cancel()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		if silent {
			return fmt.Errorf("read records: none came within %s, and %d partitions are not read to their end", silence, left)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("read %s/%d: %w", errs[0].Topic, errs[0].Partition, errs[0].Err)
		}
		for iterator := fetches.RecordIter(); !iterator.Done(); {
			r := iterator.Next()
			p := partition{r.Topic, r.Partition}
			b := ranges[p]
			if r.Offset >= b.to-1 && !done[p] {
				done[p] = true
				left--
			}
			if r.Offset >= b.to {
				continue
			}
			if err := f(r, contract.TopicID(listed[r.Topic].ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// change reads a record as the bridge does; it reports false for what is no
// change: filtered and control records.
func (k *Kafka) change(r *kgo.Record, id contract.TopicID) (Change, bool) {
	reading := k.Intake.Read(r, r.Timestamp)
	if reading.Filtered {
		return Change{}, false
	}
	return Change{
		Source:   contract.Source{TopicID: id, Topic: r.Topic, Partition: r.Partition},
		Position: contract.Position{Epoch: r.LeaderEpoch, Offset: r.Offset},
		Account:  reading.Account, Bad: reading.Bad, Time: r.Timestamp.UTC(),
	}, true
}

func (k *Kafka) admin() (*kadm.Client, error) {
	client, err := kadm.NewOptClient(k.Options...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return client, nil
}

// ParseRecord reads TOPIC/PARTITION/OFFSET.
func ParseRecord(text string) (topic string, number int32, offset int64, err error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 && parts[0] != "" {
		p, errP := strconv.ParseInt(parts[1], 10, 32)
		o, errO := strconv.ParseInt(parts[2], 10, 64)
		if errP == nil && errO == nil && p >= 0 && o >= 0 {
			return parts[0], int32(p), o, nil
		}
	}
	return "", 0, 0, fmt.Errorf("%q is not a record: want TOPIC/PARTITION/OFFSET", text)
}
