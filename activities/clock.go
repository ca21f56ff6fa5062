package activities

import (
	"context"
	"time"
)

// clock tells Temporal's time: the instant at which the server started the
// attempt, plus what has passed here since the attempt arrived. A worker's wall
// clock may be off by any amount, and one that is fast would take changes for
// settled that are not. What the attempt's way to the worker took is missing,
// so this clock can only be late, which errs on the safe side.
type clock struct {
	started time.Time // by the server
	arrived time.Time // here; only its monotonic reading matters
}

func newClock(started time.Time) clock { return clock{started: started.UTC(), arrived: time.Now()} }

func (c clock) now() time.Time { return c.started.Add(time.Since(c.arrived)) }

// sleep waits for d and returns early, with the cause, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
