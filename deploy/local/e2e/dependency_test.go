package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestDependencyStops pauses Temporal, then Spanner, under load, each for longer
// than any single request may take. It is not parallel: all would stand still.
func TestDependencyStops(t *testing.T) {
	p := newPipeline(t)
	p.startBoth()
	p.traffic(load.Config{Accounts: 12, Rate: 4, Seed: 5})
	ctx, stop := context.WithCancel(t.Context())
	wait := p.runLoad(ctx, patience)
	for _, part := range []*stack.Process{world.Temporal.Process, world.Spanner.Process} {
		calls := len(p.upstream.Calls())
		p.await("traffic flows", func() bool { return len(p.upstream.Calls()) > calls+3 })
		p.pause(part, 4*time.Second)
	}
	calls := len(p.upstream.Calls())
	p.await("traffic flows again", func() bool { return len(p.upstream.Calls()) > calls+3 })
	stop()
	wait()
	p.drained()
	v := p.verdict()
	if parked := p.parked(); len(parked) > 0 {
		t.Errorf("parked: %v", parked)
	}
	t.Logf("%d changes, %d calls, of which %d were in vain", len(p.load.Changes()), len(v.calls), len(v.wasted))
}

// pause stops a part of the stack for d.
func (p *pipeline) pause(part *stack.Process, d time.Duration) {
	p.t.Helper()
	p.must(part.Signal(syscall.SIGSTOP))
	time.Sleep(d) // that it takes its time is the point
	p.must(part.Signal(syscall.SIGCONT))
}
