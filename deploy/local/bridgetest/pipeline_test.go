package bridgetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// pipeline is a pipeline that one test has for itself.
type pipeline struct {
	*stack.Pipeline
	t              *testing.T
	upstream       *upstream.Simulator
	bridge, worker *stack.Process
}

// newPipeline creates topics and tables and starts a worker and a bridge.
func newPipeline(t *testing.T, name string, settings ...string) *pipeline {
	t.Helper()
	ctx := t.Context()
	name += fmt.Sprintf("-%x", time.Now().UnixNano()&0xffffff)
	p := &pipeline{t: t, Pipeline: world.Pipeline(name, append([]string{
		"UPSTREAM_RPS=100", "SETTLE_TIME=1s", "MAX_CLOCK_SKEW=100ms", "SETTLE_DELAY=8s", "COMMIT_INTERVAL=200ms",
	}, settings...)...)}
	p.Topic, p.DeadLetterTopic = name, name+"-dead"
	must(t, world.CreateTopic(ctx, p.Topic, 1, nil))
	must(t, world.CreateTopic(ctx, p.DeadLetterTopic, 1, nil))
	var err error
	p.Database, err = world.CreateDatabase(ctx, strings.ReplaceAll(name, "-", ""))
	must(t, err)
	p.upstream, p.UpstreamURL, err = world.ServeUpstream(0, upstream.Config{MaxLag: time.Second, Seed: 1})
	must(t, err)
	must(t, p.Migrate(ctx))
	p.worker, err = p.Run(ctx, "worker", "worker")
	must(t, err)
	t.Cleanup(func() { p.end(p.worker) })
	p.bridge, err = p.Run(ctx, "bridge", "bridge")
	must(t, err)
	t.Cleanup(func() { p.end(p.bridge) })
	return p
}

// end ends a process and shows its last words if the test has failed.
func (p *pipeline) end(process *stack.Process) {
	must(p.t, process.Kill())
	if p.t.Failed() {
		output, _ := process.Output()
		p.t.Logf("%s (%s):\n%s", process.Name, process.LogFile, stack.Tail(output))
	}
}

// change makes a change of the account and produces its record.
func (p *pipeline) change(account string) {
	p.t.Helper()
	p.upstream.Change(account)
	must(p.t, world.kafka.ProduceSync(p.t.Context(), &kgo.Record{Topic: p.Topic, Key: []byte(account)}).FirstErr())
}

// drained waits until everything is committed.
func (p *pipeline) drained() {
	p.t.Helper()
	until(p.t, "everything is committed", func() bool {
		lag, err := p.Lag(p.t.Context())
		must(p.t, err)
		return lag == 0
	})
}

// said reports whether the bridge's log has a line with all of the words.
func (p *pipeline) said(words ...string) bool {
	p.t.Helper()
	output, err := p.bridge.Output()
	must(p.t, err)
	for line := range strings.Lines(output) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}
