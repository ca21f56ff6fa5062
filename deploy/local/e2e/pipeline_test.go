package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Settle times of every pipeline, unless its settings say otherwise.
const (
	settleTime = 1500 * time.Millisecond
	clockSkew  = 100 * time.Millisecond
	settle     = settleTime + clockSkew
	delay      = 2500 * time.Millisecond
)

// patience is how long a condition may take that holds sooner or later. A test
// that passes waits for none of it, as a rule: a classic group whose member is
// killed while it joins stands still for the rebalance timeout, a minute.
const patience = 100 * time.Second

// pipeline is everything that one test has for itself.
type pipeline struct {
	t        *testing.T
	name     string // PIPELINE, consumer group and task queue
	topic    string
	letters  string // dead-letter topic
	env      []string
	upstream *upstream.Simulator
	spanner  *spanner.Client
	kafka    *kgo.Client
	load     *load.Generator
	delay    time.Duration

	mu        sync.Mutex
	processes []*stack.Process
	addresses map[*stack.Process]string // of their status pages
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// newPipeline creates topics, tables and a simulator, and no process yet. The
// settings are NAME=value and come on top of the test's usual ones.
func newPipeline(t *testing.T, settings ...string) *pipeline {
	t.Helper()
	name := fmt.Sprintf("%d-%s", world.pipelines.Add(1), strings.Trim(notInName.ReplaceAllString(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "-"), "-"))
	p := &pipeline{t: t, name: strings.Trim(name[:min(len(name), 36)], "-"), delay: delay, addresses: map[*stack.Process]string{}}
	p.topic, p.letters = p.name, p.name+"-dead"
	ctx := t.Context()
	p.must(world.CreateTopic(ctx, p.topic, 4, nil))
	p.must(world.CreateTopic(ctx, p.letters, 1, nil))
	database, err := world.CreateDatabase(ctx, fmt.Sprintf("e2e-%d", world.pipelines.Load())+randomSuffix())
	p.must(err)
	simulator, url, err := world.ServeUpstream(0, upstream.Config{MaxLag: settleTime, Seed: 1})
	p.must(err)
	p.upstream = simulator
	p.env = append(world.Env(),
		"PIPELINE="+p.name, "KAFKA_TOPICS="+p.topic, "DEAD_LETTER_TOPIC="+p.letters,
		"SPANNER_DATABASE="+database, "UPSTREAM_URL="+url, "UPSTREAM_RPS=100",
		"SETTLE_TIME="+settleTime.String(), "SETTLE_DELAY="+p.delay.String(), "MAX_CLOCK_SKEW="+clockSkew.String(),
		"COMMIT_INTERVAL=200ms", "HEARTBEAT_TIMEOUT=2s", "KAFKA_SESSION_TIMEOUT=2s")
	p.env = append(p.env, settings...)
	if out, code := p.command("worker", "migrate"); code != 0 {
		t.Fatalf("worker migrate: exit code %d\n%s", code, out)
	}
	p.spanner, err = world.Spanner.Client(ctx, database)
	p.must(err)
	t.Cleanup(p.spanner.Close)
	p.kafka, err = kgo.NewClient(kgo.SeedBrokers(world.Kafka.Brokers...))
	p.must(err)
	t.Cleanup(p.kafka.Close)
	p.traffic(load.Config{})
	t.Cleanup(p.killAll)
	return p
}

func randomSuffix() string { return fmt.Sprintf("-%x", time.Now().UnixNano()&0xffffff) }

// traffic sets what p.load makes when it is run.
func (p *pipeline) traffic(cfg load.Config) {
	p.load = load.New(cfg, p.upstream, p.kafka, p.topic)
}

func (p *pipeline) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// launch starts `<binary> run` without waiting until it is ready.
func (p *pipeline) launch(binary string, settings ...string) (process *stack.Process, address string) {
	p.t.Helper()
	port, err := world.ports.Next()
	p.must(err)
	address = fmt.Sprintf("127.0.0.1:%d", port)
	p.mu.Lock()
	defer p.mu.Unlock()
	process = &stack.Process{
		Name: fmt.Sprintf("%s %d of %s", binary, len(p.processes), p.name), Path: world.binaries[binary], Args: []string{"run"},
		Env:     append(append(append([]string{}, p.env...), "STATUS_ADDR="+address), settings...),
		LogFile: filepath.Join(world.LogDir, fmt.Sprintf("%s-%s-%d.log", p.name, binary, len(p.processes))),
	}
	p.processes = append(p.processes, process)
	p.addresses[process] = address
	p.must(process.Start())
	return process, address
}

// start is launch and waits until the process is ready.
func (p *pipeline) start(binary string, settings ...string) *stack.Process {
	p.t.Helper()
	process, address := p.launch(binary, settings...)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	p.must(world.AwaitHTTP(ctx, process, "http://"+address+"/readyz"))
	return process
}

// startBoth starts a worker and a bridge.
func (p *pipeline) startBoth() (worker, bridge *stack.Process) {
	p.t.Helper()
	return p.start("worker"), p.start("bridge")
}

// killAll ends what is left, and shows the last words of all if the test failed.
func (p *pipeline) killAll() {
	for _, process := range p.processes {
		if err := process.Kill(); err != nil {
			p.t.Error(err)
		}
		if p.t.Failed() {
			output, _ := process.Output()
			p.t.Logf("%s (%s):\n%s", process.Name, process.LogFile, stack.Tail(output))
		}
	}
}

func (p *pipeline) kill(process *stack.Process) {
	p.t.Helper()
	p.must(process.Kill())
}

// command runs a command of a binary and returns its output and exit code. The
// output is stdout and, where the command failed, stderr.
func (p *pipeline) command(binary string, args ...string) (output string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, world.binaries[binary], args...)
	cmd.Env = append(os.Environ(), p.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), 0
	case errors.As(err, &exit):
		return stdout.String() + stderr.String(), exit.ExitCode()
	}
	p.t.Fatalf("%s %v: %v", binary, args, err)
	return "", 0
}

// change makes one change of each account and waits until its record is in
// Kafka.
func (p *pipeline) change(accounts ...string) {
	p.t.Helper()
	for _, account := range accounts {
		p.load.Change(p.t.Context(), account)
	}
	p.must(p.kafka.Flush(p.t.Context()))
}

// run makes the load's changes for d. The returned function waits for their end.
func (p *pipeline) runLoad(ctx context.Context, d time.Duration) (wait func()) {
	ctx, cancel := context.WithTimeout(ctx, d)
	ended := make(chan error, 1)
	go func() { ended <- p.load.Run(ctx) }()
	return func() {
		p.t.Helper()
		defer cancel()
		p.must(<-ended)
	}
}

// await waits until the condition holds.
func (p *pipeline) await(what string, condition func() bool) {
	p.t.Helper()
	if !stacktest.Within(patience, condition) {
		p.t.Fatalf("%s: not within %s; lag %d, calls %d, parked %v", what, patience, p.lag(), len(p.upstream.Calls()), p.parked())
	}
}

// drained waits until all records are committed.
func (p *pipeline) drained() {
	p.t.Helper()
	p.await("all committed", func() bool { return p.lag() == 0 })
}

// lag is the group's lag, summed over partitions.
func (p *pipeline) lag() (n int64) {
	p.t.Helper()
	lags, err := world.Lags(p.t.Context(), p.name, p.topic)
	p.must(err)
	for _, l := range lags {
		n += l.Lag
	}
	return n
}

// calls is how many calls arrived for the account so far.
func (p *pipeline) calls(account string) int { return len(p.upstream.CallsOf(account)) }

// started reports whether the account has a run that is open in Temporal.
func (p *pipeline) started(account string) bool {
	description, err := world.temporal.DescribeWorkflowExecution(p.t.Context(), contract.AccountWorkflowID(p.name, account), "")
	return err == nil && description.GetWorkflowExecutionInfo().GetCloseTime() == nil
}

// processStatus is what the tests read of a bridge's status, or a worker's.
type processStatus struct {
	Partitions []struct {
		Watermark int64 `json:"watermark"`
	} `json:"partitions"`
	// Parked is a worker's: how many accounts of the pipeline are.
	Parked struct {
		Accounts int `json:"accounts"`
	} `json:"parked"`
}

// status reads the process's status; one that does not answer has none.
func (p *pipeline) status(process *stack.Process) (status processStatus) {
	p.t.Helper()
	response, err := http.Get("http://" + p.addresses[process] + "/status")
	if err != nil {
		return status
	}
	defer response.Body.Close()
	if json.NewDecoder(response.Body).Decode(&status) != nil {
		return processStatus{}
	}
	return status
}

// watermark is up to where the bridge would commit, summed over partitions.
func (p *pipeline) watermark(bridge *stack.Process) (n int64) {
	for _, partition := range p.status(bridge).Partitions {
		n += partition.Watermark
	}
	return n
}

// partitions is how many partitions the bridge has.
func (p *pipeline) partitions(bridge *stack.Process) int { return len(p.status(bridge).Partitions) }

// parkedAccount is what `worker parked list --json` tells of one.
type parkedAccount struct {
	Account string           `json:"account"`
	NextTry time.Time        `json:"next_try"`
	Failure contract.Failure `json:"failure"`
}

// parked asks `worker parked list --json`.
func (p *pipeline) parked() map[string]parkedAccount {
	p.t.Helper()
	output, code := p.command("worker", "parked", "list", "--json")
	if code != 0 {
		p.t.Fatalf("worker parked list: exit code %d\n%s", code, output)
	}
	var list []parkedAccount
	p.must(json.Unmarshal([]byte(output), &list))
	accounts := make(map[string]parkedAccount, len(list))
	for _, a := range list {
		accounts[a.Account] = a
	}
	return accounts
}
