package load

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// Upstream makes the changes. [*upstream.Simulator] is one.
type Upstream interface {
	Change(account string) upstream.Change
}

// Change is one change that was made and told of.
type Change struct {
	Account string
	Version int64
	// At is when it was made: before its record was produced.
	At time.Time
	// Partition and Offset are its record's. Offset is -1 until the broker has
	// acknowledged it.
	Partition int32
	Offset    int64
}

// Generator makes changes of upstream and produces a record for each.
type Generator struct {
	cfg      Config
	upstream Upstream
	client   *kgo.Client
	topic    string

	mu      sync.Mutex
	changes []Change
	failed  error // the first record that could not be produced
}

// New returns a generator that produces to topic with client, which stays the
// caller's. The configuration must be valid.
func New(cfg Config, up Upstream, client *kgo.Client, topic string) *Generator {
	return &Generator{cfg: cfg, upstream: up, client: client, topic: topic}
}

// Run makes changes until ctx ends and then waits until all their records are
// acknowledged, for at most 10 s. It returns an error if one is not: then there
// is a change that nobody has been told of, and no pipeline could find it.
func (g *Generator) Run(ctx context.Context) error {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
events:
	for event := range g.cfg.Events() {
		timer.Reset(time.Until(start.Add(event.After)))
		select {
		case <-ctx.Done():
			break events
		case <-timer.C:
		}
		// The record outlives ctx: the change has been made.
		g.Change(context.WithoutCancel(ctx), event.Account)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := g.client.Flush(ctx); err != nil {
		return fmt.Errorf("flush records to %s: %w", g.topic, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed
}

// Change makes one change of the account and produces its record, without
// waiting for the acknowledgement.
func (g *Generator) Change(ctx context.Context, account string) {
	made := g.upstream.Change(account)
	value, err := json.Marshal(struct {
		Account string `json:"account"`
		Version int64  `json:"version"`
	}{made.Account, made.Version})
	if err != nil {
		panic(err) // a string and an integer
	}
	g.mu.Lock()
	index := len(g.changes)
	g.changes = append(g.changes, Change{Account: account, Version: made.Version, At: made.At, Offset: -1})
	g.mu.Unlock()
	record := &kgo.Record{Topic: g.topic, Key: []byte(account), Value: value, Timestamp: made.At}
	g.client.Produce(ctx, record, func(r *kgo.Record, err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if err == nil {
			g.changes[index].Partition, g.changes[index].Offset = r.Partition, r.Offset
		} else if g.failed == nil {
			g.failed = fmt.Errorf("produce change %d of %s to %s: %w", made.Version, account, g.topic, err)
		}
	})
}

// Changes returns all changes so far in the order they were made.
func (g *Generator) Changes() []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.changes)
}
