package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// runs is a bridge's way to ask runs for a replay.
func (r *recorder) runs() *replay.Runs {
	return &replay.Runs{Client: r.bridge, Pipeline: pipeline, Settings: settings}
}

// replayed: an account without changes is called for a replay.
func (r *recorder) replayed(ctx context.Context, account string) (string, error) {
	r.upstream.Change(account)
	return r.runs().Request(ctx, account, contract.ReplayRequest{ID: "drill", Operator: "ada"})
}

// replayedDuringTheCall: the replay is asked for while a change's call is under
// way, and gets one of its own.
func (r *recorder) replayedDuringTheCall(ctx context.Context, account string) (string, error) {
	r.upstream.Inject(account, upstream.Fault{Delay: time.Second, Times: 1})
	runID, err := r.start(ctx, account, settings)
	if err != nil {
		return "", err
	}
	if err := r.called(ctx, account, 1); err != nil {
		return "", err
	}
	_, err = r.runs().Request(ctx, account, contract.ReplayRequest{ID: "drill", Operator: "ada"})
	return runID, err
}

// replay records a replay that is paused and resumed, and one that is cancelled,
// hosted here as a bridge would.
func (r *recorder) replay(ctx context.Context) error {
	fmt.Fprintln(r.progress, "recording replays")
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// As in a bridge, a pause arrives within a second.
	host := worker.New(r.temporal, contract.ReplayTaskQueue(pipeline), worker.Options{DisableWorkflowWorker: true, MaxHeartbeatThrottleInterval: time.Second})
	activity := &replay.Activity{Accounts: r.runs(), Kafka: &replay.Kafka{}, Logger: slog.New(slog.DiscardHandler)}
	activity.Register(host)
	if err := host.Start(); err != nil {
		return err
	}
	defer host.Stop()
	control := &replay.Control{
		Client: r.temporal, Converter: converter.GetDefaultDataConverter(), Namespace: client.DefaultNamespace, Pipeline: pipeline, TaskQueue: pipeline,
	}
	for name, end := range map[string]func(context.Context, string) error{
		"replay-resumed": control.Resume, "replay-cancelled": control.Cancel,
	} {
		accounts := make([]string, 40)
		for i := range accounts {
			accounts[i] = fmt.Sprint(name, "-", i)
			r.upstream.Change(accounts[i])
		}
		in := contract.ReplayInput{ID: name, Operator: "ada", Reason: "drill", What: "40 named accounts", Accounts: accounts, InFlight: 2, MaxPerSecond: 4}
		if err := control.Start(ctx, in); err != nil {
			return err
		}
		if err := r.called(ctx, accounts[2], 1); err != nil {
			return err
		}
		if err := control.Pause(ctx, name); err != nil {
			return err
		}
		err := r.await(ctx, "pause of "+name, func() (bool, error) {
			v, err := control.Show(ctx, name)
			return err == nil && v.Paused && v.Progress.Counts.Synced > 0, err
		})
		if err != nil {
			return err
		}
		if err := end(ctx, name); err != nil {
			return err
		}
		history, err := r.read(ctx, contract.ReplayWorkflowID(pipeline, name), "")
		if err != nil {
			return err
		}
		if err := r.save(name, history); err != nil {
			return err
		}
	}
	return nil
}
