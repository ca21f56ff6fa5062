package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// TestOrderlyStop stops both processes in the middle of their work.
func TestOrderlyStop(t *testing.T) {
	t.Parallel()
	const grace = 10 * time.Second
	p := newPipeline(t, "COMMIT_INTERVAL=1m", "SHUTDOWN_GRACE="+grace.String())
	worker, bridge := p.startBoth()
	for i := range 5 {
		p.change(fmt.Sprintf("account-%d", i))
	}
	p.upstream.Inject("slow", upstream.Fault{Delay: 1500 * time.Millisecond, Times: 1})
	p.change("slow")
	p.await("the slow call", func() bool { return p.calls("slow") == 1 })
	p.terminate(worker, grace)
	// The worker has finished what it had begun, and the bridge knows of it.
	p.await("the slow answer", func() bool { return p.upstream.CallsOf("slow")[0].Status == 200 })
	p.start("worker")
	p.await("all covered", func() bool { return p.watermark(bridge) == 6 })
	if lag := p.lag(); lag != 6 {
		t.Errorf("lag %d before the last commit, want 6", lag)
	}
	p.terminate(bridge, grace)
	if lag := p.lag(); lag != 0 {
		t.Errorf("lag %d after the last commit", lag)
	}
	p.noWaste(p.verdict())
}

// terminate sends SIGTERM and expects exit code 0 within the grace.
func (p *pipeline) terminate(process *stack.Process, grace time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), grace)
	defer cancel()
	if err := process.Terminate(ctx); err != nil {
		p.t.Errorf("SIGTERM: %v", err)
	}
}
