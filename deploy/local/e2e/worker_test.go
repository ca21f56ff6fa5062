package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/proxy"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// TestWorkerKilled kills a worker at the points where something is half done.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	const account = "alice"
	for _, test := range []struct {
		name string
		// until returns once the worker, whose requests to Temporal and Spanner
		// pass the proxies, has come to the point.
		until func(p *pipeline, temporal, spanner *proxy.GRPC)
		// wasted is how many calls the kill explains.
		wasted int
	}{
		{"while the run settles", func(p *pipeline, _, _ *proxy.GRPC) {
			p.change(account)
			p.await("run started", func() bool { return p.started(account) })
		}, 0},
		{"while upstream has not answered", func(p *pipeline, _, _ *proxy.GRPC) {
			p.upstream.Inject(account, upstream.Fault{Kind: upstream.Hang, Times: 1})
			p.change(account)
			p.await("called", func() bool { return p.calls(account) == 1 })
		}, 1},
		{"between the call and the commit", func(p *pipeline, _, spanner *proxy.GRPC) {
			held := spanner.Hold("Commit")
			p.change(account)
			p.awaitClosed("commit", held)
		}, 1},
		{"between the commit and Temporal", func(p *pipeline, temporal, _ *proxy.GRPC) {
			held := temporal.Hold("RespondActivityTaskCompleted")
			p.change(account)
			p.awaitClosed("response to Temporal", held)
		}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t)
			temporal, spanner := newProxy(t, world.Temporal.Address), newProxy(t, world.Spanner.EmulatorHost)
			worker := p.start("worker", "TEMPORAL_ADDRESS="+temporal.Address, "SPANNER_EMULATOR_HOST="+spanner.Address)
			p.start("bridge")
			test.until(p, temporal, spanner)
			p.kill(worker)
			p.change("bob") // meanwhile nobody is there to sync
			p.start("worker")
			p.drained()
			v := p.verdict()
			if len(v.wasted) != test.wasted {
				t.Errorf("%d calls were not written, want %d: %+v", len(v.wasted), test.wasted, v.wasted)
			}
			if want := 2 + test.wasted; len(v.calls) != want {
				t.Errorf("%d calls, want %d: %+v", len(v.calls), want, v.calls)
			}
		})
	}
}

func (p *pipeline) awaitClosed(what string, c <-chan struct{}) {
	p.t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		p.t.Fatalf("%s: not within %s", what, patience)
	}
}

// TestWorkersKilledUnderLoad kills one of two workers again and again.
func TestWorkersKilledUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.start("bridge")
	workers := []*stack.Process{p.start("worker"), p.start("worker")}
	p.traffic(load.Config{Accounts: 30, Rate: 8, Seed: 11})
	p.upstream.Inject("", upstream.Fault{Delay: 300 * time.Millisecond}) // so that kills meet calls
	kills := p.torment(20*time.Second, workers, nil)
	p.drained()
	v := p.verdict()
	if bad := v.unexplained(kills); len(bad) > 0 {
		t.Errorf("calls that no kill explains: %+v", bad)
	}
	t.Logf("%d kills, %d changes, %d calls, of which %d were in vain", len(kills), len(p.load.Changes()), len(v.calls), len(v.wasted))
}

// torment makes the load for d and meanwhile kills one of the processes after
// the other, at random moments once ready says so (nil: always), each time
// starting it again. It returns when they were killed.
func (p *pipeline) torment(d time.Duration, processes []*stack.Process, ready func() bool) (kills []time.Time) {
	p.t.Helper()
	moments := *seed
	if moments == 0 {
		moments = uint64(time.Now().UnixNano())
	}
	p.t.Logf("-seed %d", moments)
	random := rand.New(rand.NewPCG(moments, 0))
	ctx, cancel := context.WithTimeout(p.t.Context(), d)
	defer cancel()
	wait := p.runLoad(ctx, d)
	for i := 0; ; i++ {
		timer := time.NewTimer(500*time.Millisecond + time.Duration(random.Int64N(int64(2*time.Second))))
		select {
		case <-ctx.Done():
			timer.Stop()
			wait()
			return kills
		case <-timer.C:
		}
		if ready != nil {
			p.await("ready for the next kill", func() bool { return ready() || ctx.Err() != nil })
		}
		process := processes[i%len(processes)]
		p.kill(process)
		kills = append(kills, time.Now())
		p.must(process.Start())
	}
}
