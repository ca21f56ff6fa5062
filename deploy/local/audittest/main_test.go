package audittest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// Settle times of every pipeline.
const (
	settleTime = 1500 * time.Millisecond
	clockSkew  = 100 * time.Millisecond
	delay      = 2500 * time.Millisecond
)

// patience is how long a condition may take that holds sooner or later.
const patience = 2 * time.Minute

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	temporal  client.Client
	binaries  map[string]string // by name
	pipelines atomic.Int32
}

func TestMain(m *testing.M) {
	stacktest.Main(m, stack.Options{}, prepare)
}

func prepare(ctx context.Context, s *stack.Stack) (release func(), err error) {
	world.Stack = s
	if world.binaries, err = stacktest.Binaries(ctx, s); err != nil {
		return nil, err
	}
	if world.temporal, err = stacktest.Dial(ctx, s); err != nil {
		return nil, err
	}
	return world.temporal.Close, nil
}

// pipeline is everything that one test has for itself.
type pipeline struct {
	*testing.T
	name, topic string
	env         []string
	upstream    *upstream.Simulator
	spanner     *spanner.Client
	kafka       *kgo.Client
	started     int
}

// newPipeline creates topic, tables and a simulator, and no process yet.
func newPipeline(t *testing.T, settings ...string) *pipeline {
	t.Helper()
	n := world.pipelines.Add(1)
	name := fmt.Sprintf("audit-%d-%x", n, time.Now().UnixNano()&0xffffff)
	p := &pipeline{T: t, name: name, topic: name}
	require.NoError(t, world.CreateTopic(t.Context(), p.topic, 2, nil))
	require.NoError(t, world.CreateTopic(t.Context(), p.topic+"-dead", 1, nil))
	database, err := world.CreateDatabase(t.Context(), name)
	require.NoError(t, err)
	simulator, url, err := world.ServeUpstream(0, upstream.Config{MaxLag: settleTime, Seed: 1})
	require.NoError(t, err)
	p.upstream = simulator
	p.env = append(world.Env(), "PIPELINE="+name, "KAFKA_TOPICS="+p.topic, "DEAD_LETTER_TOPIC="+p.topic+"-dead",
		"SPANNER_DATABASE="+database, "UPSTREAM_URL="+url, "UPSTREAM_RPS=50",
		"SETTLE_TIME="+settleTime.String(), "SETTLE_DELAY="+delay.String(), "MAX_CLOCK_SKEW="+clockSkew.String(),
		"COMMIT_INTERVAL=200ms", "HEARTBEAT_TIMEOUT=2s", "PARK_AFTER=2")
	p.env = append(p.env, settings...)
	p.command("worker", "migrate")
	p.spanner, err = world.Spanner.Client(t.Context(), database)
	require.NoError(t, err)
	t.Cleanup(p.spanner.Close)
	p.kafka, err = kgo.NewClient(kgo.SeedBrokers(world.Kafka.Brokers...), kgo.DefaultProduceTopic(p.topic))
	require.NoError(t, err)
	t.Cleanup(p.kafka.Close)
	return p
}

// run starts `<binary> run` and waits until it is ready.
func (p *pipeline) run(binary string) *stack.Process {
	p.Helper()
	return p.runPath(binary, world.binaries[binary])
}

// runPath is run for a binary of another build.
func (p *pipeline) runPath(binary, path string, settings ...string) *stack.Process {
	p.Helper()
	port, err := stack.FreePort()
	require.NoError(p, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p.started++
	name := fmt.Sprintf("%s-%s-%d", p.name, binary, p.started)
	process := &stack.Process{
		Name: name, Path: path, Args: []string{"run"}, Env: append(append(slices.Clone(p.env), "STATUS_ADDR="+address), settings...),
		LogFile: filepath.Join(world.LogDir, name+".log"),
	}
	require.NoError(p, process.Start())
	p.Cleanup(func() {
		_ = process.Kill() // it may have been killed already
		if p.Failed() {
			output, _ := process.Output()
			p.Logf("%s:\n%s", name, stack.Tail(output))
		}
	})
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	require.NoError(p, world.AwaitHTTP(ctx, process, "http://"+address+"/readyz"))
	return process
}

// exit runs a command and returns what it printed and its exit code.
func (p *pipeline) exit(binary string, args ...string) (stdout, stderr string, code int) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, world.binaries[binary], args...)
	command.Env = append(os.Environ(), p.env...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		p.Fatalf("%s %v: %v", binary, args, err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// command is exit for one that must succeed.
func (p *pipeline) command(binary string, args ...string) string {
	p.Helper()
	stdout, stderr, code := p.exit(binary, args...)
	require.Zero(p, code, "%s %v\n%s%s", binary, args, stdout, stderr)
	return stdout
}

// decode runs a command that prints JSON, whatever its exit code.
func (p *pipeline) decode(to any, binary string, args ...string) (code int) {
	p.Helper()
	stdout, stderr, code := p.exit(binary, args...)
	require.NoError(p, json.Unmarshal([]byte(stdout), to), "%s %v: exit code %d\n%s%s", binary, args, code, stdout, stderr)
	return code
}

// change changes the accounts, one record each.
func (p *pipeline) change(accounts ...string) {
	p.Helper()
	for _, account := range accounts {
		p.upstream.Change(account)
		require.NoError(p, p.kafka.ProduceSync(p.Context(), &kgo.Record{Key: []byte(account)}).FirstErr())
	}
}

// succeeding keeps an account changing until stop is called, which returns how
// often: where nobody's calls succeed it is an outage, in which nobody parks.
func (p *pipeline) succeeding() (stop func() int) {
	ended, changes := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ended:
				changes <- n
				return
			case <-p.Context().Done(): // the test has failed
				return
			case <-tick.C:
			}
			p.upstream.Change("healthy")
			if err := p.kafka.ProduceSync(p.Context(), &kgo.Record{Key: []byte("healthy")}).FirstErr(); err != nil && p.Context().Err() == nil {
				p.Error(err)
			}
		}
	}()
	return func() int { close(ended); return <-changes }
}

func (p *pipeline) await(what string, condition func() bool) {
	p.Helper()
	require.Eventually(p, condition, patience, 100*time.Millisecond, what)
}

// committed awaits that every record is committed.
func (p *pipeline) committed() {
	p.Helper()
	p.await("all committed", func() bool {
		lags, err := world.Lags(p.Context(), p.name, p.topic)
		require.NoError(p, err)
		for _, l := range lags {
			if l.Lag != 0 {
				return false
			}
		}
		return true
	})
}

// offsets returns the group's committed offset of each partition.
func (p *pipeline) offsets() map[int32]int64 {
	p.Helper()
	lags, err := world.Lags(p.Context(), p.name, p.topic)
	require.NoError(p, err)
	offsets := map[int32]int64{}
	for _, l := range lags {
		offsets[l.Partition] = l.Committed
	}
	return offsets
}

// sql changes the database behind everybody's back.
func (p *pipeline) sql(statement string) {
	p.Helper()
	_, err := p.spanner.ReadWriteTransaction(p.Context(), func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		_, err := tx.Update(ctx, spanner.NewStatement(statement))
		return err
	})
	require.NoError(p, err)
}

func accounts(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("account-%03d", i)
	}
	return all
}
