package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// replayLease bounds one slice of a replay: the activity begins no account
	// after ten minutes and then waits for those under way.
	replayLease = 15 * time.Minute
	// replayHeartbeat is how soon a replay moves on from a bridge that died.
	replayHeartbeat = 10 * time.Second
	// replaySlices is how many slices one run makes: a day, in some 1,000 events.
	replaySlices = 150
)

// Replay has the accounts of in called again, whatever their rows say, a slice
// at a time, by an activity that the bridges host. It is a loop around that
// activity and the operator's signals:
//
//	slice ── complete ─────────────▶ completed, with the report
//	  │ ▲ ── the slice is over ────▶ the next one, from where it ended
//	  │ └─── resume ── paused ◀───── pause: the slice ends early
//	  └───── cancel ───────────────▶ cancelled; accounts under way go on
//
// How far it has come is in [contract.ReplayProgress], which a slice returns and
// heartbeats, so that neither a bridge nor a worker that dies costs more than a
// few accounts' second look.
func Replay(ctx workflow.Context, in contract.ReplayInput) (contract.ReplayState, error) {
	r := &replay{
		ReplayInput: in,
		pause:       workflow.GetSignalChannel(ctx, contract.SignalPause),
		resume:      workflow.GetSignalChannel(ctx, contract.SignalResume),
	}
	if r.Began.IsZero() {
		r.Began = workflow.GetInfo(ctx).WorkflowStartTime
	}
	err := workflow.SetQueryHandler(ctx, contract.QueryReplay, func() (contract.ReplayState, error) { return r.state(), nil })
	if err != nil {
		return r.state(), err
	}
	for slices := 0; !r.Progress.Complete; slices++ {
		if err := r.waitWhilePaused(ctx); err != nil {
			return r.state(), temporal.NewCanceledError(r.state())
		}
		if slices == replaySlices || workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			r.control()
			return r.state(), workflow.NewContinueAsNewError(ctx, contract.Replay, r.ReplayInput)
		}
		if err := r.slice(ctx); err != nil {
			return r.state(), err
		}
	}
	return r.state(), nil
}

// replay is the state of a run; what the next one needs is its input.
type replay struct {
	contract.ReplayInput
	pause, resume workflow.ReceiveChannel
}

func (r *replay) state() contract.ReplayState {
	return contract.ReplayState{
		ID: r.ID, Operator: r.Operator, Reason: r.Reason, What: r.What,
		Began: r.Began, Accounts: len(r.Accounts), Ranges: r.Ranges, Paused: r.Paused, Progress: r.Progress,
	}
}

// control takes in what operators have signalled. Of several signals that came
// together a pause wins: it is the cautious one.
func (r *replay) control() {
	for r.resume.ReceiveAsync(nil) {
		r.Paused = false
	}
	for r.pause.ReceiveAsync(nil) {
		r.Paused = true
	}
}

// waitWhilePaused returns an error only if the replay is cancelled.
func (r *replay) waitWhilePaused(ctx workflow.Context) error {
	r.control()
	for r.Paused {
		selector := workflow.NewSelector(ctx)
		selector.AddReceive(r.resume, func(c workflow.ReceiveChannel, _ bool) {
			c.ReceiveAsync(nil)
			r.Paused = false
		})
		selector.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
		selector.Select(ctx)
		if ctx.Err() != nil {
			break
		}
		r.control()
	}
	return ctx.Err()
}

// slice runs the activity until its slice is over, a pause or a cancellation.
func (r *replay) slice(ctx workflow.Context) error {
	working, stop := workflow.WithCancel(ctx)
	defer stop()
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(working, workflow.ActivityOptions{
		TaskQueue:           contract.ReplayTaskQueue(workflow.GetInfo(ctx).TaskQueueName),
		StartToCloseTimeout: replayLease,
		HeartbeatTimeout:    replayHeartbeat,
		WaitForCancellation: true, // it comes back with its progress
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}), contract.ReplayAccounts, r.ReplayInput)
	r.Again = true

	var err error
	done := false
	selector := workflow.NewSelector(ctx)
	selector.AddFuture(future, func(f workflow.Future) {
		done = true
		progress := contract.ReplayProgress{}
		if err = f.Get(ctx, &progress); err == nil {
			r.Progress = progress
		}
	})
	selector.AddReceive(r.pause, func(c workflow.ReceiveChannel, _ bool) {
		c.ReceiveAsync(nil)
		r.Paused = true
		stop()
	})
	for !done {
		selector.Select(ctx)
	}
	r.adopt(err)
	switch {
	case r.Progress.Complete:
		return nil
	case ctx.Err() != nil:
		return temporal.NewCanceledError(r.state())
	case r.Paused, temporal.IsCanceledError(err):
		// The server repeats no activity that is to be cancelled. So a pause may
		// meet one that no bridge has, or that fails or dies before it has heard
		// of it: how far it came is in its last heartbeat at best. The next slice
		// looks at what runs have served before it asks again.
		return nil
	}
	return err
}

// adopt takes the progress over that the error of a slice carries, if any.
func (r *replay) adopt(err error) {
	var timeout *temporal.TimeoutError
	var progress contract.ReplayProgress
	if errors.As(err, &timeout) && timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&progress) == nil {
		r.Progress = progress
	}
}
