package consumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Headers of a dead letter: why, and whence.
const (
	HeaderReason    = "quiesce-reason"
	HeaderTopic     = "quiesce-topic"
	HeaderPartition = "quiesce-partition"
	HeaderOffset    = "quiesce-offset"
	HeaderTimestamp = "quiesce-timestamp" // RFC 3339, UTC
)

// deadLetterRetry is how long a letter that was not accepted waits.
const deadLetterRetry = time.Second

// letter is a record on its way to the dead-letter topic. Its room in the
// buffer is given back, and its place in the ledger done, once all in-sync
// replicas have it, and not before.
type letter struct {
	record     *kgo.Record
	assignment *ledger.Assignment
	position   contract.Position
	size       int64 // room in the buffer
	reduced    reduction
	// alone: it was refused for its size, maybe for that of the others in its
	// batch. Before anything is left out it goes in a batch of its own.
	alone bool
}

// reduction is how much was left out because the broker refused the size.
type reduction int

const (
	whole       reduction = iota
	noValue               // key and headers only
	bareHeaders           // only the headers that say why and whence
)

// deadLetters produces letters without ever blocking its callers.
type deadLetters struct {
	consumer *Consumer

	mu      sync.Mutex
	waiting []letter // to be produced again by loop
	open    int      // sent and not acknowledged, waiting included
}

func newDeadLetters(c *Consumer) *deadLetters { return &deadLetters{consumer: c} }

// producer returns the options of the client that produces dead letters. What
// it buffers is bounded by the buffer already, so its own bounds are out of the
// way: reaching them would block the poll loop.
func (c *Consumer) producer() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(1 << 30),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RecordDeliveryTimeout(30 * time.Second),
	}
}

// DeadLetter treats a change whose signal is itself invalid as BAD_RECORD says
// of a bad record. The caller has released the change's room in the buffer; from
// here on the change is the consumer's. Its payload is gone already, so the
// letter has a key and headers only. Not to be called from within Sink.Submit.
func (c *Consumer) DeadLetter(change buffer.Change, reason string) {
	switch c.cfg.Intake.BadRecord {
	case intake.BadSkip:
		c.log.Warn("bad record skipped", "topic", change.Source.Topic, "partition", change.Source.Partition, "offset", change.Position.Offset, "reason", reason)
		change.Assignment.Done(change.Position)
		return
	case intake.BadStop:
		c.mu.Lock()
		defer c.mu.Unlock()
		part := c.partitions[partitionKey{change.Source.Topic, change.Source.Partition}]
		if part != nil && part.assignment == change.Assignment {
			c.stopPartition(part, fmt.Sprintf("record %s@%d: %s", part.key, change.Position.Offset, reason), "--to-offset", fmt.Sprint(change.Position.Offset+1))
		}
		return
	}
	c.deps.Buffer.Take(change.Size())
	c.dead.send(letter{
		record: &kgo.Record{
			Key:   []byte(change.Account),
			Topic: change.Source.Topic, Partition: change.Source.Partition, Offset: change.Position.Offset,
			Timestamp: change.Time,
		},
		assignment: change.Assignment, position: change.Position, size: change.Size(), reduced: noValue,
	}, reason)
}

// send addresses l, whose record says whence it came, and produces it.
func (d *deadLetters) send(l letter, reason string) {
	r := l.record
	r.Headers = append(r.Headers,
		kgo.RecordHeader{Key: HeaderReason, Value: []byte(reason)},
		kgo.RecordHeader{Key: HeaderTopic, Value: []byte(r.Topic)},
		kgo.RecordHeader{Key: HeaderPartition, Value: strconv.AppendInt(nil, int64(r.Partition), 10)},
		kgo.RecordHeader{Key: HeaderOffset, Value: strconv.AppendInt(nil, r.Offset, 10)},
		kgo.RecordHeader{Key: HeaderTimestamp, Value: r.Timestamp.UTC().AppendFormat(nil, time.RFC3339Nano)},
	)
	l.record = &kgo.Record{Topic: d.consumer.cfg.Intake.DeadLetterTopic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	d.mu.Lock()
	d.open++
	d.mu.Unlock()
	d.produce(l)
}

func (d *deadLetters) produce(l letter) {
	// Not the poll loop's context: a stop must let the letters under way finish.
	d.consumer.admin.TryProduce(context.Background(), l.record, func(_ *kgo.Record, err error) { d.answered(l, err) })
}

// answered runs on the client's goroutine as well: it must not produce.
func (d *deadLetters) answered(l letter, err error) {
	c := d.consumer
	if err == nil {
		l.assignment.Done(l.position)
		c.deps.Buffer.ReleaseBytes(l.size)
		c.deps.Metrics.Count("bridge.dead_letters", 1, "outcome:accepted")
		d.mu.Lock()
		d.open--
		d.mu.Unlock()
		return
	}
	c.deps.Metrics.Count("bridge.dead_letters", 1, "outcome:error")
	switch {
	case !errors.Is(err, kerr.MessageTooLarge) || l.reduced == bareHeaders && l.alone:
		if source := l.assignment.Source(); c.seldom.now("dead letter") {
			c.log.Error("dead letter not accepted, trying again", "dead_letter_topic", c.cfg.Intake.DeadLetterTopic,
				"topic", source.Topic, "partition", source.Partition, "offset", l.position.Offset, "not_accepted", d.inFlight(), "error", err)
		}
	case l.alone:
		l = l.reduce()
	default:
		l.alone = true
	}
	// The client's state of a record that it failed is not for using again.
	r := *l.record
	l.record = &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	d.mu.Lock()
	d.waiting = append(d.waiting, l)
	d.mu.Unlock()
}

func (l letter) reduce() letter {
	l.reduced++
	r := &kgo.Record{Topic: l.record.Topic, Key: l.record.Key, Headers: l.record.Headers}
	if l.reduced == bareHeaders {
		r.Key, r.Headers = nil, r.Headers[len(r.Headers)-5:] // those that send appended
	}
	l.record = r
	return l
}

// loop produces again what was not accepted. A letter whose partition is gone
// is dropped: the next owner meets the record too.
func (d *deadLetters) loop(ctx context.Context) {
	tick := time.NewTicker(deadLetterRetry)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.retry(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (d *deadLetters) retry(ctx context.Context) {
	d.mu.Lock()
	again := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	for _, l := range again {
		if l.assignment.Dropped() {
			d.consumer.deps.Buffer.ReleaseBytes(l.size)
			d.mu.Lock()
			d.open--
			d.mu.Unlock()
			continue
		}
		if l.alone {
			// Nobody else uses this client, so its batches hold one record.
			d.answered(l, d.consumer.single.ProduceSync(ctx, l.record).FirstErr())
			continue
		}
		d.produce(l)
	}
}

// flush waits until every letter was answered, and returns an error if some
// were not accepted.
func (d *deadLetters) flush(ctx context.Context) error {
	d.retry(ctx)
	if err := d.consumer.admin.Flush(ctx); err != nil {
		return fmt.Errorf("flush dead letters: %w", err)
	}
	if n := d.inFlight(); n > 0 {
		return fmt.Errorf("%d dead letters were not accepted", n)
	}
	return nil
}

func (d *deadLetters) inFlight() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}
