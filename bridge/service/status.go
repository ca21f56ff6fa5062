package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	"github.com/quiesce-io/quiesce/bridge/where"
	"github.com/quiesce-io/quiesce/internal/process"
)

// Status is what the bridge serves at /status.
type Status struct {
	Pipeline string `json:"pipeline"`
	Version  string `json:"version"`
	consumer.Status
	OldestUncommittedSeconds float64 `json:"oldest_uncommitted_seconds"`
	// Oldest is the oldest change that is not done, and what it waits for, as
	// it was found some seconds ago.
	Oldest      Oldest          `json:"oldest"`
	Dispatch    dispatch.Status `json:"dispatch"`
	WatchedRuns int             `json:"watched_runs"`
	// ClockAheadSeconds is by how much this machine's clock is certainly ahead
	// of Temporal's; negative if it is behind.
	ClockAheadSeconds float64 `json:"clock_ahead_seconds"`
	Bounds            Bounds  `json:"bounds"`
	Lease             Lease   `json:"lease"`
}

// Bounds are the numbers that were chosen.
type Bounds struct {
	BufferRecords  int   `json:"buffer_records"`
	BufferBytes    int64 `json:"buffer_bytes"`
	MaxUncommitted int   `json:"max_uncommitted"`
	Executors      int   `json:"executors"`
	Watchers       int   `json:"watchers"`
}

// Lease is the loop that is closest to the end of its lease.
type Lease struct {
	Loop            string  `json:"loop"`
	HeadroomSeconds float64 `json:"headroom_seconds"`
}

// Status returns the present state.
func (b *Bridge) Status() Status {
	s := Status{
		Pipeline:          b.config.Common.Pipeline,
		Version:           process.Version,
		Status:            b.consumer.Status(),
		Dispatch:          b.dispatch.Status(),
		WatchedRuns:       b.watcher.Open(),
		ClockAheadSeconds: b.clock.Offset().Seconds(),
		Bounds: Bounds{
			BufferRecords: b.config.Buffer.Records, BufferBytes: int64(b.config.Buffer.Bytes),
			MaxUncommitted: b.config.Buffer.MaxUncommitted,
			Executors:      b.config.Dispatch.Executors, Watchers: b.config.Watch.Watchers,
		},
	}
	if !s.OldestUncommitted.IsZero() {
		s.OldestUncommittedSeconds = time.Since(s.OldestUncommitted).Seconds()
	}
	b.mu.Lock()
	s.Oldest = b.oldest
	b.mu.Unlock()
	if loop, left, ok := b.watchdog.Headroom(); ok {
		s.Lease = Lease{Loop: loop, HeadroomSeconds: left.Seconds()}
	}
	return s
}

func (b *Bridge) status() process.Status {
	return process.Status{
		Snapshot: func() any { return b.Status() }, Dependencies: b.outside,
		Metrics: b.deps.Metrics,
		Live:    b.watchdog.Check,
		Routes:  map[string]http.Handler{"GET /where": http.HandlerFunc(b.serveWhere)},
		Ready: func() error {
			s := b.consumer.Status()
			switch {
			case s.StoppedPartitions > 0:
				return fmt.Errorf("%d partitions are stopped; see /status", s.StoppedPartitions)
			case !b.clock.Agrees():
				return errors.New(b.clock.String())
			default:
				return b.watchdog.Check()
			}
		},
	}
}

func (b *Bridge) partitionStatus(r where.Record) (consumer.PartitionStatus, bool) {
	for _, p := range b.consumer.Status().Partitions {
		if p.Topic == r.Topic && p.Partition == r.Partition {
			return p, true
		}
	}
	return consumer.PartitionStatus{}, false
}

// report sends the gauges that belong to no single part.
func (b *Bridge) report(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if _, left, ok := b.watchdog.Headroom(); ok {
				b.deps.Metrics.Gauge("bridge.lease_headroom_seconds", left.Seconds())
			}
		}
	}
}
