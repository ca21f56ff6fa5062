package service

import (
	"context"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// replaySlots is how many replays a bridge works on at a time.
	replaySlots = 2
	// replayStop is below restGrace: a replay that is told to stop comes back
	// with its progress within a second.
	replayStop = 1500 * time.Millisecond
	// replayBeat is how often a replay tells how far it is, and learns that it is
	// to pause or to end. Left to itself the SDK asks every 8 s.
	replayBeat = time.Second
	// replayRetry is how long a worker that did not start waits.
	replayRetry = 5 * time.Second
)

// replays hosts the activity of replays until ctx is done. A Temporal that does
// not answer is waited for: it must not end a bridge, which waits for it too.
func (b *Bridge) replays(ctx context.Context) error {
	in, err := intake.New(b.config.Kafka.Intake)
	if err != nil {
		return err
	}
	for {
		err := b.hostReplays(ctx, in)
		if ctx.Err() != nil {
			return nil
		}
		b.deps.Logger.Warn("replays cannot be hosted; trying again", "error", err)
		timer := time.NewTimer(replayRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

func (b *Bridge) hostReplays(ctx context.Context, in *intake.Intake) error {
	options, err := b.config.Kafka.Connection() // its token may be had later
	if err != nil {
		return err
	}
	activity := &replay.Activity{
		Accounts: &replay.Runs{
			Client: b.runs, Pipeline: b.config.Common.Pipeline, Settings: b.config.Lease.Settings(b.config.Settle),
		},
		Kafka: &replay.Kafka{Options: append(options, b.deps.Kafka...), Intake: in}, Logger: b.deps.Logger,
	}
	fatal := make(chan error, 1) // the SDK reports one
	host := worker.New(b.deps.Temporal, contract.ReplayTaskQueue(b.config.Common.Queue()), worker.Options{
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityExecutionSize: replaySlots,
		MaxHeartbeatThrottleInterval:       replayBeat,
		WorkerStopTimeout:                  replayStop,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	})
	activity.Register(host)
	if err := process.StartWorker(ctx, host); err != nil {
		return err
	}
	defer host.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return err
	}
}
