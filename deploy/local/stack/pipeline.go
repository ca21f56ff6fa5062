package stack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

const (
	migrateTimeout = 60 * time.Second
	readyTimeout   = 60 * time.Second
)

// Pipeline is one pipeline on the stack: where it reads, writes and calls, and
// the way to its bridges and workers.
type Pipeline struct {
	// Name is PIPELINE and KAFKA_GROUP.
	Name string
	// Topic, DeadLetterTopic and Database exist.
	Topic, DeadLetterTopic, Database string
	// Upstream is the simulator that it calls, UpstreamURL where.
	Upstream    *upstream.Simulator
	UpstreamURL string
	// Settings are further variables for bridge and worker, as KEY=VALUE.
	Settings []string

	stack *Stack
}

// Pipeline returns a pipeline on the stack's own topics, database and upstream.
func (s *Stack) Pipeline(name string, settings ...string) *Pipeline {
	return &Pipeline{
		Name: name, Topic: s.topic, DeadLetterTopic: s.deadLetterTopic, Database: s.Spanner.Database,
		Upstream: s.Upstream, UpstreamURL: s.UpstreamURL, Settings: settings, stack: s,
	}
}

// Env returns the environment of the pipeline's processes, as KEY=VALUE.
func (p *Pipeline) Env() []string {
	return append(p.stack.Env(), append([]string{
		"PIPELINE=" + p.Name,
		"KAFKA_GROUP=" + p.Name,
		"KAFKA_START=earliest",
		"KAFKA_TOPICS=" + p.Topic,
		"DEAD_LETTER_TOPIC=" + p.DeadLetterTopic,
		"SPANNER_DATABASE=" + p.Database,
		"UPSTREAM_URL=" + p.UpstreamURL,
	}, p.Settings...)...)
}

// Process returns a process for a command of part, "bridge" or "worker", that is
// still to be started. Its name must be unique within the pipeline; env comes
// after the pipeline's own.
func (p *Pipeline) Process(ctx context.Context, name, part string, args []string, env ...string) (*Process, error) {
	return p.stack.Binary(ctx, p.Name+"-"+name, part, args, append(p.Env(), env...))
}

// Migrate creates the tables with `worker migrate`.
func (p *Pipeline) Migrate(ctx context.Context) error {
	migrate, err := p.Process(ctx, "migrate", "worker", []string{"migrate"})
	if err != nil {
		return err
	}
	if err := migrate.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if err := migrate.Wait(ctx); err != nil {
		output, _ := migrate.Output()
		return errors.Join(fmt.Errorf("worker migrate: %w\n%s", err, Tail(output)), migrate.Kill())
	}
	return nil
}

// Run starts `<part> run` with a status page of its own and waits until it is
// ready. The process is returned with an error too if it was started: it is the
// caller's to end. A name is used once; a process that was killed is started
// again by [Process.Start] and [Pipeline.AwaitReady].
func (p *Pipeline) Run(ctx context.Context, name, part string, env ...string) (*Process, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	process, err := p.Process(ctx, name, part, []string{"run"}, append(env, "STATUS_ADDR="+loopback(port))...)
	if err != nil {
		return nil, err
	}
	process.StatusURL = "http://" + loopback(port) + "/status"
	if err := process.Start(); err != nil {
		return nil, err
	}
	return process, p.AwaitReady(ctx, process)
}

// AwaitReady waits until a process of [Pipeline.Run] is ready.
func (p *Pipeline) AwaitReady(ctx context.Context, process *Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return p.stack.AwaitHTTP(ctx, process, strings.TrimSuffix(process.StatusURL, "/status")+"/readyz")
}

// Lags returns the pipeline's lag on every partition of its topic.
func (p *Pipeline) Lags(ctx context.Context) ([]PartitionLag, error) {
	return p.stack.Lags(ctx, p.Name, p.Topic)
}

// Lag returns the pipeline's lag, summed over partitions.
func (p *Pipeline) Lag(ctx context.Context) (int64, error) {
	lags, err := p.Lags(ctx)
	total := int64(0)
	for _, lag := range lags {
		total += lag.Lag
	}
	return total, err
}
