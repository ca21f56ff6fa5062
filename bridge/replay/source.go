package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Kafka reads records without a group.
type Kafka struct {
	Options []kgo.Opt // how to reach the brokers
	Intake  *intake.Intake
}

// silence is how long records may fail to come, where there are some.
const silence = 30 * time.Second

// item is one place of a replay and the account that is met there; "" where none
// can be derived.
type item struct {
	at      contract.ReplayCursor
	account string
}

// each calls f for every change of the replay, in order, until f fails. An
// account is met as often as it has changes.
func (k *Kafka) each(ctx context.Context, in contract.ReplayInput, f func(item) error) error {
	for i, account := range in.Accounts {
		if err := f(item{contract.ReplayCursor{Offset: int64(i)}, account}); err != nil {
			return err
		}
	}
	for i, r := range in.Ranges {
		if err := k.records(ctx, i, r, f); err != nil {
			return err
		}
	}
	return nil
}

// records goes through one range. What retention has dropped meanwhile is gone;
// the rest is read. It ends with a record at or behind the last offset: there is
// one, for compaction spares a partition's newest record, and transactions end
// with a control record, which is kept.
func (k *Kafka) records(ctx context.Context, index int, r contract.ReplayRange, f func(item) error) error {
	name := fmt.Sprintf("%s/%d", r.Topic, r.Partition)
	client, err := kgo.NewClient(append(k.Options, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxBytes(8<<20), kgo.FetchMaxPartitionBytes(1<<20))...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer client.Close()
	first, end, err := bounds(ctx, kadm.NewClient(client), r.Topic, r.Partition)
	if err != nil {
		return fmt.Errorf("replay %s: %w", name, err)
	}
	from, to := max(r.From, first), min(r.To, end)
	if from >= to {
		return nil
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: kgo.NewOffset().At(from)}})
	for {
		polling, cancel := context.WithTimeout(ctx, silence)
		fetches := client.PollRecords(polling, 1000)
		silent := polling.Err() != nil
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if silent {
			return fmt.Errorf("replay %s: no record within %s, and offset %d is still to come", name, silence, to-1)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("replay %s: %w", name, errs[0].Err)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			record := records.Next()
			if record.Offset < to {
				reading := k.Intake.Read(record, time.Now())
				if !reading.Filtered {
					if err := f(item{contract.ReplayCursor{Range: index, Offset: record.Offset}, reading.Account}); err != nil {
						return err
					}
				}
			}
			if record.Offset >= to-1 {
				return nil
			}
		}
	}
}

// bounds returns the first offset that the partition has, and the one after the
// last that can be read.
func bounds(ctx context.Context, admin *kadm.Client, topic string, partition int32) (first, end int64, err error) {
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return 0, 0, err
	}
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, 0, err
	}
	start, ok := starts.Lookup(topic, partition)
	last, _ := ends.Lookup(topic, partition)
	if !ok {
		return 0, 0, fmt.Errorf("topic %s has no partition %d", topic, partition)
	}
	return start.Offset, last.Offset, nil
}

// Survey is what a replay would do.
type Survey struct {
	Changes  int `json:"changes"`
	Accounts int `json:"accounts"` // distinct; each is called once
	Invalid  int `json:"invalid"`  // records without a usable account key
}

// Survey reads what the replay would read, and changes nothing.
func (k *Kafka) Survey(ctx context.Context, in contract.ReplayInput) (Survey, error) {
	var s Survey
	seen := map[string]struct{}{}
	err := k.each(ctx, in, func(i item) error {
		s.Changes++
		if i.account == "" {
			s.Invalid++
			return nil
		}
		seen[i.account] = struct{}{}
		return nil
	})
	s.Accounts = len(seen)
	return s, err
}

// Between returns the ranges of all records of the topics that were made in a
// span of time, by their timestamps, as far as they ascend.
func (k *Kafka) Between(ctx context.Context, topics []string, since, until time.Time) ([]contract.ReplayRange, error) {
	admin, err := kadm.NewOptClient(k.Options...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer admin.Close()
	from, err := admin.ListOffsetsAfterMilli(ctx, since.UnixMilli(), topics...)
	if err == nil {
		err = from.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("offsets at %s: %w", since.Format(time.RFC3339), err)
	}
	to, err := admin.ListOffsetsAfterMilli(ctx, until.UnixMilli(), topics...)
	if err == nil {
		err = to.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("offsets at %s: %w", until.Format(time.RFC3339), err)
	}
	var ranges []contract.ReplayRange
	for _, o := range from.Offsets().Sorted() {
		end, _ := to.Lookup(o.Topic, o.Partition)
		if o.At < end.Offset {
			ranges = append(ranges, contract.ReplayRange{Topic: o.Topic, Partition: o.Partition, From: o.At, To: end.Offset})
		}
	}
	return ranges, nil
}
