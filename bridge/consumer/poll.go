package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// pollRecords bounds what one poll hands over, and so what is held.
	pollRecords = 1000
	// pollWait is how long a poll waits for records: the loop turns at least
	// this often, whatever Kafka does.
	pollWait = 250 * time.Millisecond
	// unreadableLimit is how many fetches in a row may be unreadable before
	// their partition stops: the same batch would be fetched for ever.
	unreadableLimit = 10
)

// item is a fetched record, reduced to what admission needs.
type item struct {
	position contract.Position
	reading  intake.Reading
	letter   *kgo.Record // a copy of a bad record that is to be dead-lettered
	size     int64       // what it takes in the buffer; 0 if it is done when seen
}

// pollLoop polls, admits and allows rebalances, in turns that involve no other
// I/O than the poll. Room that is given back in the meantime ends a poll early
// if somebody waits for it.
func (c *Consumer) pollLoop(ctx context.Context) {
	for ctx.Err() == nil {
		waiting := c.admitHeld()
		fetches := c.poll(ctx, waiting)
		if fetches.IsClientClosed() {
			c.fail(errors.New("kafka client closed by itself"))
			return
		}
		c.receive(fetches)
		c.client.AllowRebalance()
		c.deps.PollTurn()
	}
}

func (c *Consumer) poll(ctx context.Context, waiting bool) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	if !waiting {
		return c.client.PollRecords(ctx, pollRecords)
	}
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-c.deps.Buffer.Woken():
			cancel()
		case <-done:
		}
	}()
	fetches := c.client.PollRecords(ctx, pollRecords)
	close(done)
	<-finished
	return fetches
}

// receive takes in what a poll returned.
func (c *Consumer) receive(fetches kgo.Fetches) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fetch := range fetches {
		for _, topic := range fetch.Topics {
			for i := range topic.Partitions {
				c.receivePartition(topic, &topic.Partitions[i], now)
			}
		}
	}
}

func (c *Consumer) receivePartition(topic kgo.FetchTopic, fetched *kgo.FetchPartition, now time.Time) {
	key := partitionKey{topic.Topic, fetched.Partition}
	part := c.partitions[key]
	if fetched.Err != nil {
		c.fetchError(key, part, fetched.Err)
	}
	if part == nil || part.stopped != "" || len(fetched.Records) == 0 {
		return
	}
	if topic.TopicID != [16]byte{} && !c.meet(key.topic, topic.TopicID) {
		return
	}
	part.unreadable = 0
	part.end = max(part.end, fetched.LastStableOffset)
	part.held = slices.Grow(part.held, len(fetched.Records))
	for _, r := range fetched.Records {
		part.held = append(part.held, c.read(r, now))
	}
	c.admit(part)
}

func (c *Consumer) read(r *kgo.Record, now time.Time) item {
	it := item{
		position: contract.Position{Epoch: r.LeaderEpoch, Offset: r.Offset},
		reading:  c.intake.Read(r, now),
	}
	switch {
	case it.reading.Account != "":
		it.size = buffer.Change{Account: it.reading.Account}.Size()
	case it.reading.Bad != "" && c.cfg.Intake.BadRecord == intake.BadDeadLetter:
		it.letter = letterOf(r)
		it.size = buffer.Change{}.Size() + recordBytes(it.letter)
	}
	return it
}

// admitHeld admits what has been waiting, and reports whether some still is.
func (c *Consumer) admitHeld() (waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, part := range c.partitions {
		if len(part.held) > 0 && part.stopped == "" {
			c.admit(part)
			waiting = waiting || len(part.held) > 0
		}
	}
	return waiting
}

// admit lets in what is held, in order, as far as there is room, and pauses or
// resumes the partition accordingly. The caller holds mu.
func (c *Consumer) admit(part *partition) {
	mayAdmit, admitted := c.deps.MayAdmit(), 0
	switch {
	case !mayAdmit:
		part.mistimed = true
	case part.mistimed:
		part.mistimed = false
		retime(part.held, time.Now())
	}
	for _, it := range part.held {
		if it.reading.Bad != "" && c.cfg.Intake.BadRecord == intake.BadStop {
			part.held = nil
			c.stopPartition(part, fmt.Sprintf("record %s@%d: %s", part.key, it.position.Offset, it.reading.Bad), "--to-offset", fmt.Sprint(it.position.Offset+1))
			return
		}
		if !mayAdmit || !part.gate.Admit(it.size, len(c.partitions)) {
			break
		}
		c.take(part, it)
		admitted++
	}
	part.held = part.held[admitted:]
	switch {
	case len(part.held) == 0 && part.paused:
		part.held, part.paused = nil, false
		c.client.ResumeFetchPartitions(part.key.single())
	case len(part.held) == 0:
		part.held = nil
	case !part.paused:
		part.paused = true
		c.client.PauseFetchPartitions(part.key.single())
	}
}

// retime lets changes that were read while the clock was off arrive now: the
// times that it gave them, or that it held theirs against, may be far too early,
// and a call would be taken to cover what it came too soon for.
func retime(held []item, now time.Time) {
	for i := range held {
		if at := &held[i].reading.Time; !at.IsZero() {
			*at = now
		}
	}
}

// take hands an admitted record on. The caller holds mu.
func (c *Consumer) take(part *partition, it item) {
	a, p := part.assignment, it.position
	switch a.See(p, it.reading.Time) {
	case ledger.Completed:
		c.deps.Metrics.Count("bridge.skipped_completed", 1, "topic:"+part.key.topic)
		c.giveBack(it)
		return
	case ledger.Repeated, ledger.Gone:
		c.giveBack(it)
		return
	}
	outcome := "outcome:change"
	switch {
	case it.reading.Filtered:
		outcome = "outcome:filtered"
		a.Done(p)
	case it.letter != nil:
		outcome = "outcome:dead_letter"
		c.dead.send(letter{record: it.letter, assignment: a, position: p, size: it.size}, it.reading.Bad)
	case it.reading.Bad != "":
		outcome = "outcome:skipped"
		c.log.Warn("bad record skipped", "topic", part.key.topic, "partition", part.key.partition, "offset", p.Offset, "reason", it.reading.Bad)
		a.Done(p)
	default:
		c.deps.Sink.Submit(buffer.Change{
			Account: it.reading.Account, Source: a.Source(), Position: p,
			Time: it.reading.Time, Version: it.reading.Version, Assignment: a,
		})
	}
	c.deps.Metrics.Count("bridge.records", 1, "topic:"+part.key.topic, outcome)
}

func (c *Consumer) giveBack(it item) {
	if it.size > 0 {
		c.deps.Buffer.ReleaseBytes(it.size)
	}
}

func (k partitionKey) single() map[string][]int32 { return map[string][]int32{k.topic: {k.partition}} }

// fetchError sorts out what the client reports about a partition, or about the
// group (then there is no topic). The caller holds mu.
func (c *Consumer) fetchError(key partitionKey, part *partition, err error) {
	var lost *kgo.ErrDataLoss
	var bomb *kgo.ErrDecompressTooLarge
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// the poll had nothing to return
	case c.fatal(err) != nil:
		c.fail(c.fatal(err))
	case part == nil:
		c.warn(key, "kafka", err)
	case errors.As(err, &lost):
		// The client goes on where the logs parted; the ledger takes back what
		// does not exist any more.
		c.log.Error("the log was truncated: records that had been acknowledged are gone", "topic", key.topic, "partition", key.partition, "error", err)
	case errors.As(err, &bomb):
		// The client says so once and fetches the partition no more.
		c.stopPartition(part, fmt.Sprintf("%s: the batch at offset %d decompresses to more than %d MiB", key, bomb.Offset, maxBatchBytes>>20),
			"--to-offset", fmt.Sprint(bomb.NextOffset))
	case errors.Is(err, kerr.OffsetOutOfRange):
		c.stopPartition(part, fmt.Sprintf("%s: the offset to read next does not exist any more, or not yet", key), "--to-earliest")
	case kerr.IsRetriable(err), kgo.IsRetryableBrokerErr(err):
		c.warn(key, "fetch", err)
	case !isKafkaError(err) && part.unreadable < unreadableLimit:
		// The client could not read what the broker sent, a wrong checksum for
		// one, and asks again at once.
		part.unreadable++
		c.warn(key, "fetch", err)
	default:
		// The client fetches it no more.
		c.stopPartition(part, fmt.Sprintf("%s: %v", key, err), "--to-offset", fmt.Sprint(part.assignment.State().Watermark))
	}
}

// warn logs an error of a partition, or of the group, but not again for a while:
// the client tries again at once, and some come thousands of times a second.
func (c *Consumer) warn(key partitionKey, what string, err error) {
	if c.seldom.now(what + " " + key.String()) {
		c.log.Warn(what, "topic", key.topic, "partition", key.partition, "error", err)
	}
}

func isKafkaError(err error) bool {
	var known *kerr.Error
	return errors.As(err, &known)
}

// stopPartition stops one partition until the group's offset was set by hand.
// What was admitted is still finished and committed. The caller holds mu.
func (c *Consumer) stopPartition(part *partition, why string, reset ...string) {
	if part.stopped != "" {
		return
	}
	command := c.resetCommand(part.key, reset...)
	// The command passes over what is not committed yet, so that has to come
	// first.
	part.stopped = why + "; to resume, wait until nothing before it is uncommitted (uncommitted at /status is 0, or its watermark is the offset named), stop all bridges of the group, run: " + command + " and start them again"
	part.held, part.paused = nil, true
	c.client.PauseFetchPartitions(part.key.single())
	c.log.Error("partition stopped", "topic", part.key.topic, "partition", part.key.partition, "reason", why, "resume", command)
}

// resetCommand sets the group's offset in a partition, while no bridge runs.
func (c *Consumer) resetCommand(key partitionKey, reset ...string) string {
	return fmt.Sprintf("kafka-consumer-groups.sh --bootstrap-server %s --group %s --topic %s:%d --reset-offsets %s --execute",
		strings.Join(c.cfg.Brokers, ","), c.cfg.Group, key.topic, key.partition, strings.Join(reset, " "))
}

// letterOf copies a record out of the fetch it came with: that is large, and
// stays as long as one record of it does.
func letterOf(r *kgo.Record) *kgo.Record {
	headers := make([]kgo.RecordHeader, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = kgo.RecordHeader{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	return &kgo.Record{
		Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Headers: headers,
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
	}
}

func recordBytes(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}
