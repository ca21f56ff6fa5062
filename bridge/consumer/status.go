package consumer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// PartitionStatus is one assigned partition.
type PartitionStatus struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	TopicID   contract.TopicID `json:"topic_id"`
	// Watermark is the next offset to commit, EndOffset the last stable offset
	// (-1 until known); Lag is what lies between.
	Watermark int64 `json:"watermark"`
	EndOffset int64 `json:"end_offset"`
	Lag       int64 `json:"lag"`
	// RetentionHeadroom is how many offsets lie between the first record that
	// the broker still has and the watermark; -1 until known.
	RetentionHeadroom int64 `json:"retention_headroom"`
	Uncommitted       int   `json:"uncommitted"`
	Held              int   `json:"held"` // fetched and not admitted
	// OldestUncommitted is the time of the oldest change that is not done.
	OldestUncommitted time.Time `json:"oldest_uncommitted,omitzero"`
	Paused            bool      `json:"paused"`
	// Stopped says why the partition is not read any more, and how it resumes.
	Stopped string `json:"stopped,omitempty"`
}

// Status is the consumer at one moment.
type Status struct {
	Group              string            `json:"group"`
	Partitions         []PartitionStatus `json:"partitions"`
	Lag                int64             `json:"lag"`
	Uncommitted        int               `json:"uncommitted"`
	OldestUncommitted  time.Time         `json:"oldest_uncommitted,omitzero"`
	BufferRecords      int               `json:"buffer_records"`
	BufferBytes        int64             `json:"buffer_bytes"`
	DeadLettersPending int               `json:"dead_letters_pending"`
	PausedPartitions   int               `json:"paused_partitions"`
	StoppedPartitions  int               `json:"stopped_partitions"`
}

// Status returns the present state, partitions by topic and number.
func (c *Consumer) Status() Status {
	s := Status{Group: c.cfg.Group, DeadLettersPending: c.dead.inFlight(), Partitions: []PartitionStatus{}}
	s.BufferRecords, s.BufferBytes = c.deps.Buffer.Held()
	s.Uncommitted = c.deps.Ledger.Uncommitted()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, part := range c.partitions {
		state := part.assignment.State()
		p := PartitionStatus{
			Topic: key.topic, Partition: key.partition, TopicID: part.assignment.Source().TopicID,
			Watermark: state.Watermark, EndOffset: part.end,
			Uncommitted: state.Uncommitted, Held: len(part.held), OldestUncommitted: state.Oldest,
			Paused: part.paused, Stopped: part.stopped,
		}
		p.RetentionHeadroom = -1
		if part.first >= 0 {
			p.RetentionHeadroom = max(0, state.Watermark-part.first)
		}
		if part.end >= 0 {
			p.Lag = max(0, part.end-state.Watermark)
		}
		s.Lag += p.Lag
		if part.paused {
			s.PausedPartitions++
		}
		if part.stopped != "" {
			s.StoppedPartitions++
		}
		if !p.OldestUncommitted.IsZero() && (s.OldestUncommitted.IsZero() || p.OldestUncommitted.Before(s.OldestUncommitted)) {
			s.OldestUncommitted = p.OldestUncommitted
		}
		s.Partitions = append(s.Partitions, p)
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

const (
	gaugeInterval = 2 * time.Second
	// endInterval is how often the ends of the partitions are asked for: a
	// partition without new records never says where it ends.
	endInterval = 5 * time.Second
	// alarmInterval is how often one partition's shrinking headroom is logged.
	alarmInterval = time.Minute
)

// observeLoop reports gauges, and asks where partitions end and whether the
// topics are still the same.
func (c *Consumer) observeLoop(ctx context.Context) {
	gauges, ends := time.NewTicker(gaugeInterval), time.NewTicker(endInterval)
	defer gauges.Stop()
	defer ends.Stop()
	var refused time.Time // since when the brokers refuse our credentials
	for {
		select {
		case <-gauges.C:
			c.report()
		case <-ends.C:
			err := c.observe(ctx)
			if ctx.Err() != nil {
				return // it says nothing about the brokers
			}
			c.reach(err)
			if err != nil {
				c.log.Warn("end offsets", "error", err)
			}
			switch {
			case err == nil:
				refused = time.Time{}
			case !errors.Is(err, kerr.SaslAuthenticationFailed):
				if !refused.IsZero() { // no answer says nothing about them
					refused = refused.Add(endInterval)
				}
			case refused.IsZero():
				refused = time.Now()
			case time.Since(refused) >= c.cfg.StartTimeout:
				// The next process reads the secrets anew; for us it would never end.
				c.fail(c.refused(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (c *Consumer) reach(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed = err
}

// Reached returns nil if the brokers answered when they were asked last.
func (c *Consumer) Reached() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.observed
}

func (c *Consumer) observe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endInterval)
	defer cancel()
	infos, err := c.topics(ctx, c.cfg.Topics)
	if err != nil {
		return err
	}
	if !c.meetAll(infos) {
		return nil
	}
	ends, err := c.kadm.ListCommittedOffsets(ctx, c.cfg.Topics...)
	if err != nil {
		return err
	}
	starts, err := c.kadm.ListStartOffsets(ctx, c.cfg.Topics...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, part := range c.partitions {
		if o, found := starts.Lookup(key.topic, key.partition); found && o.Err == nil {
			part.first = o.Offset
		}
		if o, found := ends.Lookup(key.topic, key.partition); found && o.Err == nil {
			part.end = o.Offset // also lower than before: a log may be truncated
		}
		c.alarm(part)
	}
	return nil
}

// alarm warns while retention is about to pass the watermark: deletion goes on,
// and all but a tenth of what the broker still has is not committed. The caller
// holds mu.
func (c *Consumer) alarm(part *partition) {
	watermark := part.assignment.State().Watermark
	if part.first <= 0 || part.end <= watermark || (watermark-part.first)*10 >= part.end-part.first {
		return
	}
	if now := time.Now(); now.Sub(part.alarmed) >= alarmInterval {
		part.alarmed = now
		c.log.Warn("retention is close to the watermark: what it passes is lost", "topic", part.key.topic, "partition", part.key.partition,
			"first", part.first, "watermark", watermark, "end", part.end)
	}
}

func (c *Consumer) report() {
	s, m := c.Status(), c.deps.Metrics
	m.Gauge("bridge.buffer.records", float64(s.BufferRecords))
	m.Gauge("bridge.buffer.bytes", float64(s.BufferBytes))
	m.Gauge("bridge.uncommitted", float64(s.Uncommitted))
	m.Gauge("bridge.paused_partitions", float64(s.PausedPartitions))
	for _, p := range s.Partitions {
		if p.RetentionHeadroom >= 0 {
			m.Gauge("bridge.retention_headroom", float64(p.RetentionHeadroom), "topic:"+p.Topic, "partition:"+strconv.Itoa(int(p.Partition)))
		}
		m.Gauge("bridge.watermark_lag", float64(p.Lag), "topic:"+p.Topic, "partition:"+strconv.Itoa(int(p.Partition)))
	}
}
