package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestBridgeSuspended: a bridge stands still until the group has given its
// partitions away, and then goes on as if nothing had been. What it believes to
// own must not be committed over the new owner's offsets.
func TestBridgeSuspended(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.start("worker")
	first, second := p.start("bridge"), p.start("bridge")
	p.await("partitions shared", func() bool { return p.partitions(first) == 2 && p.partitions(second) == 2 })
	p.traffic(load.Config{Accounts: 12, Rate: 4, Seed: 6})
	ctx, stop := context.WithCancel(t.Context())
	wait := p.runLoad(ctx, patience)
	p.await("traffic flows", func() bool { return len(p.upstream.Calls()) > 3 })
	p.must(first.Signal(syscall.SIGSTOP))
	p.await("second has all partitions", func() bool { return p.partitions(second) == 4 })
	calls, committed := len(p.upstream.Calls()), p.committed()
	p.await("second commits", func() bool { return len(p.upstream.Calls()) > calls+5 && p.committed() > committed+5 })
	committed = p.committed()
	p.must(first.Signal(syscall.SIGCONT))
	p.await("partitions shared again", func() bool {
		if now := p.committed(); now < committed {
			t.Fatalf("the commits went back from %d to %d", committed, now)
		}
		return p.partitions(first) == 2 && p.partitions(second) == 2
	})
	stop()
	wait()
	p.drained()
	p.noWaste(p.verdict())
}

// committed is the group's committed offsets, summed over partitions.
func (p *pipeline) committed() (n int64) {
	p.t.Helper()
	lags, err := world.Lags(p.t.Context(), p.name, p.topic)
	p.must(err)
	for _, l := range lags {
		n += l.Committed
	}
	return n
}

// TestWorkerCutOff: a worker loses Temporal between its call and its write, and
// lives on, until another has called and written. Its write must not undo the
// newer one.
func TestWorkerCutOff(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	temporal, spanner := newProxy(t, world.Temporal.Address), newProxy(t, world.Spanner.EmulatorHost)
	// Its write is patient enough to come after the other's.
	p.start("worker", "TEMPORAL_ADDRESS="+temporal.Address, "SPANNER_EMULATOR_HOST="+spanner.Address, "WRITE_TIMEOUT=1m", "PARK_AFTER=2")
	p.start("bridge")
	p.upstream.Inject("alice", upstream.Fault{Delay: time.Second, Times: 1})
	p.change("alice")
	p.await("called", func() bool { return p.calls("alice") == 1 })
	held := spanner.Hold("StreamingRead") // the row check is over; this is the transaction's
	p.awaitClosed("transaction", held)
	temporal.Cut()
	p.start("worker")
	p.drained()
	spanner.Pass()
	var v verdict
	p.await("the late write is fenced", func() bool {
		v = p.verdict()
		return len(v.syncs) == 2
	})
	newer, older := v.calls[1], v.calls[0]
	for _, s := range v.syncs {
		if fenced := s.Outcome == string(contract.OutcomeFenced); fenced != s.CalledAt.Before(newer.Start.Add(-time.Second)) {
			t.Errorf("sync called at %s is %s; calls %+v", s.CalledAt, s.Outcome, v.calls)
		}
	}
	if row := v.rows["alice"]; !row.CalledAt.After(older.Start) || len(v.calls) != 2 {
		t.Errorf("row %+v after calls %+v", row, v.calls)
	}
}
