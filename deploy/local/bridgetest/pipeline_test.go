package bridgetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// pipeline is a pipeline that one test has for itself.
type pipeline struct {
	*stack.Pipeline
	t              *testing.T
	upstream       *upstream.Simulator
	bridge, worker *stack.Process
	processes      int
}

// newPipeline creates topics and tables and starts a worker and a bridge.
func newPipeline(t *testing.T, name string, settings ...string) *pipeline {
	t.Helper()
	p := preparePipeline(t, name, 1, settings...)
	p.worker = p.start("worker")
	p.bridge = p.start("bridge")
	return p
}

// preparePipeline creates topics and tables.
func preparePipeline(t *testing.T, name string, partitions int32, settings ...string) *pipeline {
	t.Helper()
	ctx := t.Context()
	name += fmt.Sprintf("-%x", time.Now().UnixNano()&0xffffff)
	p := &pipeline{t: t, Pipeline: world.Pipeline(name, append([]string{
		"UPSTREAM_RPS=100", "SETTLE_TIME=1s", "MAX_CLOCK_SKEW=100ms", "SETTLE_DELAY=8s", "COMMIT_INTERVAL=200ms",
	}, settings...)...)}
	p.Topic, p.DeadLetterTopic = name, name+"-dead"
	must(t, world.CreateTopic(ctx, p.Topic, partitions, nil))
	must(t, world.CreateTopic(ctx, p.DeadLetterTopic, 1, nil))
	var err error
	p.Database, err = world.CreateDatabase(ctx, strings.ReplaceAll(name, "-", ""))
	must(t, err)
	p.upstream, p.UpstreamURL, err = world.ServeUpstream(0, upstream.Config{MaxLag: time.Second, Seed: 1})
	must(t, err)
	must(t, p.Migrate(ctx))
	return p
}

// start starts a process that ends with the test at the latest.
func (p *pipeline) start(part string, env ...string) *stack.Process {
	p.t.Helper()
	p.processes++
	process, err := p.Run(p.t.Context(), fmt.Sprintf("%s-%d", part, p.processes), part, env...)
	must(p.t, err)
	p.t.Cleanup(func() { p.end(process) })
	return process
}

// command runs a command of a binary.
func (p *pipeline) command(part string, args ...string) {
	p.t.Helper()
	binary, err := stack.BuildBinary(p.t.Context(), world.Root, part)
	must(p.t, err)
	command := exec.CommandContext(p.t.Context(), binary, args...)
	command.Env = append(os.Environ(), p.Env()...)
	if output, err := command.CombinedOutput(); err != nil {
		p.t.Fatalf("%s %v: %v\n%s", part, args, err, output)
	}
}

// status reads the bridge's status; one that does not answer has none.
func (p *pipeline) status() service.Status { return p.statusOf(p.bridge) }

func (p *pipeline) statusOf(bridge *stack.Process) (status service.Status) {
	response, err := http.Get(bridge.StatusURL)
	if err != nil {
		return service.Status{}
	}
	defer response.Body.Close()
	if json.NewDecoder(response.Body).Decode(&status) != nil {
		return service.Status{}
	}
	return status
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
