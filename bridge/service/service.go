// Package service is the bridge as a whole: it connects the parts and runs them.
package service

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/clock"
	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	"github.com/quiesce-io/quiesce/bridge/lease"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// restGrace is how long everything but the consumer may take to stop: nothing of
// it waits for anybody but the Temporal client, which may be slow to.
const restGrace = 4 * time.Second

// Deps is what the bridge reaches the world through.
type Deps struct {
	Temporal  client.Client
	Address   string // of Temporal, for errors
	Namespace string
	Identity  string
	Converter converter.DataConverter // nil for the SDK's default
	Logger    *slog.Logger
	Metrics   telemetry.Metrics
	Kafka     []kgo.Opt // added to those from the settings; for tests
	// Outside are the systems around the bridge that can be asked how they are;
	// Kafka, which the consumer asks anyhow, comes on top.
	Outside []process.Dependency
	Replays bool // host the activity of replays; takes a Temporal client that was dialled
}

// Bridge is the bridge process without its main.
type Bridge struct {
	config   Config
	deps     Deps
	runs     *run.Client
	ledger   *ledger.Ledger
	buffer   *buffer.Buffer
	watchdog *lease.Watchdog
	clock    *clock.Clock
	watcher  *watch.Watcher
	dispatch *dispatch.Dispatcher
	consumer *consumer.Consumer
	outside  *process.Dependencies

	mu     sync.Mutex
	oldest Oldest // as diagnose found it last
}

// New connects the parts; nothing runs and nothing is connected to yet.
func New(config Config, deps Deps) (*Bridge, error) {
	config = config.derived()
	if deps.Converter == nil {
		deps.Converter = converter.GetDefaultDataConverter()
	}
	b := &Bridge{config: config, deps: deps, ledger: ledger.New(), watchdog: &lease.Watchdog{Start: config.Common.StartTimeout}}
	b.runs = &run.Client{
		Service: deps.Temporal.WorkflowService(), Namespace: deps.Namespace,
		TaskQueue: config.Common.Queue(), Identity: deps.Identity, Converter: deps.Converter,
	}
	b.buffer = buffer.New(config.Buffer, b.ledger)
	b.clock = clock.New(b.runs, contract.ClockWorkflowID(config.Common.Pipeline, deps.Identity),
		config.Settle.MaxClockSkew, config.Dispatch.SignalTimeout, deps.Logger)
	b.runs.Seen = b.clock.Saw
	b.watcher = watch.New(config.Watch, b.runs, deps.Logger, b.watchdog.Loop("watcher", config.Loop.Lease))

	lanes := make([]func(), config.Dispatch.Executors)
	for i := range lanes {
		lanes[i] = b.watchdog.Loop(fmt.Sprintf("lane %d", i), config.Loop.Lease)
	}
	b.dispatch = dispatch.New(config.Dispatch, dispatch.Deps{
		Pipeline: config.Common.Pipeline,
		Settings: config.Lease.Settings(config.Settle),
		Runs:     b.runs,
		Watch:    b.watcher.Add,
		Buffer:   b.buffer,
		Refuse:   func(c buffer.Change, why string) { b.consumer.DeadLetter(c, why) },
		Turn:     func(lane int) { lanes[lane]() },
		Logger:   deps.Logger,
		Metrics:  deps.Metrics,
	})
	var err error
	b.consumer, err = consumer.New(config.Kafka, consumer.Deps{
		Logger: deps.Logger, Metrics: deps.Metrics, Sink: b.dispatch, Buffer: b.buffer, Ledger: b.ledger,
		PollTurn:   b.watchdog.Loop("poll", config.Loop.Lease),
		CommitTurn: b.watchdog.Loop("committer", config.CommitterLease()),
		MayAdmit:   b.clock.Agrees,
		Options:    deps.Kafka,
	})
	b.outside = process.NewDependencies(deps.Logger, append(deps.Outside, process.Dependency{
		Name: "kafka", At: "KAFKA_BROKERS=" + strings.Join(config.Kafka.Brokers, ","),
		Ask: func(context.Context) error { return b.consumer.Reached() },
	})...)
	return b, err
}

// Run runs the bridge until ctx is done or a part fails. It stops in this order:
//
//  1. the consumer admits no more, commits, and leaves the group
//  2. lanes, watcher and clock stop; what they had not finished is the next
//     owner's
//
// A part that hangs does not delay the stop beyond SHUTDOWN_GRACE and a little,
// nor keep this member in the group.
func (b *Bridge) Run(ctx context.Context) error {
	for _, warning := range b.config.Warnings() {
		b.deps.Logger.Warn(warning)
	}
	if err := b.prepare(ctx); err != nil {
		return process.Started(ctx, err)
	}
	consuming, stopConsuming := context.WithCancelCause(ctx)
	defer stopConsuming(nil)
	// The rest outlives the consumer, so that its last commit counts what ends
	// meanwhile.
	rest, stopRest := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRest()

	var group errgroup.Group
	background := func(name string, run func(context.Context) error) {
		group.Go(func() error {
			if err := run(rest); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				stopConsuming(err)
				return err
			}
			return nil
		})
	}
	background("dispatch", b.dispatch.Run)
	background("watch", b.watcher.Run)
	background("clock", b.clock.Run)
	background("leases", b.watchdog.Run)
	background("status", func(ctx context.Context) error {
		return process.ServeStatus(ctx, b.config.Common.StatusAddr, b.status())
	})
	background("metrics", b.report)
	background("diagnosis", b.diagnose)
	background("dependencies", b.outside.Run)
	if b.deps.Replays {
		background("replays", b.replays)
	}

	err := process.Bounded(consuming, b.config.Common.ShutdownGrace, func() error {
		return b.consumer.Run(consuming)
	})
	stopRest()
	if late := process.Bounded(rest, restGrace, group.Wait); err == nil {
		err = late
	}
	// What made the consumer stop explains the rest.
	if cause := context.Cause(consuming); cause != nil && ctx.Err() == nil {
		return cause
	}
	return err
}

// prepare checks what the bridge cannot work without, for START_TIMEOUT at most.
func (b *Bridge) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.config.Common.StartTimeout)
	defer cancel()
	if err := b.runs.CheckServer(ctx); err != nil {
		return err
	}
	for {
		err := b.clock.Compare(ctx)
		if err == nil {
			return nil
		}
		b.deps.Logger.Warn("cannot compare clocks with Temporal; trying again", "error", err)
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return process.Unreached(b.deps.Address, b.deps.Namespace, fmt.Errorf("compare clocks: %w", err))
		case <-timer.C:
		}
	}
}
