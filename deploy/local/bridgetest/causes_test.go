package bridgetest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// TestCauses has the oldest change wait for one thing after the other. What only
// words tell the bridge, those of a worker that hands back, are a worker's here.
func TestCauses(t *testing.T) {
	if !*long { // which stops the server for a while
		t.Parallel()
	}
	p := preparePipeline(t, "causes", 1, "PERMIT_WAIT=1s", "SETTLE_DELAY=6s")
	p.worker, p.bridge = p.start("worker"), p.start("bridge")
	is := func(cause service.Cause, detail string, meanwhile ...func()) {
		t.Helper()
		var last service.Oldest
		// Workers count as absent after 75 s.
		untilWithin(t, 2*time.Minute, string(cause)+": "+detail, func() bool {
			for _, do := range meanwhile {
				do()
			}
			if now := p.status().Oldest; now != last {
				last = now
				t.Logf("%.0fs %s %s %s", now.Seconds, now.Cause, now.Detail, now.Link)
			}
			return last.Cause == cause && strings.Contains(last.Detail, detail)
		})
	}
	p.command("worker", "budget", "set", "0")
	p.change("alice")
	is(service.CauseSettling, "until ")
	is(service.CausePermits, "PERMIT_WAIT")
	p.command("worker", "budget", "set", "100")
	p.drained()
	is(service.CauseNone, "")

	mend := p.upstream.Inject("", upstream.Fault{Status: 503})
	for i := range 10 {
		p.change(fmt.Sprint("all-", i))
	}
	is(service.CauseUpstream, "503")
	mend()
	p.drained()

	mend = p.upstream.Inject("carol", upstream.Fault{Status: 500})
	p.change("carol")
	tick, others := time.NewTicker(time.Second), 0
	defer tick.Stop()
	is(service.CauseAccount, " tries since ", func() { // others succeed in between
		select {
		case <-tick.C:
			p.change(fmt.Sprint("other-", others))
			others++
		default:
		}
	})
	mend()
	p.drained()
	if !*long {
		return
	}

	must(t, p.worker.Kill())
	p.change("dave")
	is(service.CauseWorkers, "task queue "+p.Name)
	p.worker = p.start("worker")
	p.drained()

	// A server that neither answers nor refuses.
	must(t, world.Temporal.Process.Signal(syscall.SIGSTOP))
	resume := func() { must(t, world.Temporal.Process.Signal(syscall.SIGCONT)) }
	t.Cleanup(resume)
	p.change("erin")
	is(service.CauseTemporal, "deadline")
	resume()
	p.drained()
}
