package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
)

// lastBeat is how long an attempt that is done waits for a heartbeat that is under
// way. Giving up at once would have the SDK log a warning each time.
const lastBeat = 200 * time.Millisecond

// accompany keeps an attempt company: it heartbeats three times in each
// heartbeat timeout, whatever the attempt is doing, and ends the returned
// context, with [errStopping], when the worker begins to shut down. The caller
// calls stop, which waits for the goroutine. A heartbeat that is under way is
// given a moment and then given up: one that Temporal does not answer must not
// hold up the attempt's result.
//
// The context is for waits only. A call or a write that is under way is let
// finish; the worker gives it its stop timeout, and then ends the activity's
// own context.
func accompany(ctx context.Context, heartbeat time.Duration) (waits context.Context, stop func()) {
	waits, cancel := context.WithCancelCause(ctx)
	stopping := activity.GetWorkerStopChannel(ctx)
	beats, giveUp := context.WithCancel(ctx)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var beat <-chan time.Time // never, where no heartbeat is asked for
		if heartbeat > 0 {
			ticker := time.NewTicker(max(heartbeat/3, time.Millisecond))
			defer ticker.Stop()
			beat = ticker.C
			activity.RecordHeartbeat(beats)
		}
		for {
			select {
			case <-beat:
				activity.RecordHeartbeat(beats)
			case <-stopping:
				cancel(errStopping)
				stopping = nil
			case <-quit:
				return
			case <-beats.Done():
				return
			}
		}
	}()
	return waits, func() {
		close(quit)
		patience := time.AfterFunc(lastBeat, giveUp)
		<-done
		patience.Stop()
		giveUp()
		cancel(nil)
	}
}
