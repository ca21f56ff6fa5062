// Package clock compares the bridge's clock with Temporal's.
//
// Where a change has no time that can be trusted, the bridge's clock gives it
// one, and the worker compares that with call times in Temporal's clock. A
// bridge that is behind would make calls too early, and one that is ahead too
// late; so while the two are further apart than MAX_CLOCK_SKEW, nothing is
// admitted.
//
// The clocks are compared every minute. Between, the times of events that are
// read tell at once if the bridge has fallen behind: none is later than now.
package clock

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/bridge/run"
)

// Every is how often the clocks are compared.
const Every = time.Minute

// Reader reads Temporal's clock. [run.Client] implements it.
type Reader interface {
	ReadClock(ctx context.Context, workflowID, requestID string) (run.ClockReading, error)
}

// Clock knows how far the two clocks are apart. Create it with [New].
type Clock struct {
	reader     Reader
	workflowID string
	maxSkew    time.Duration
	timeout    time.Duration
	logger     *slog.Logger

	behind chan struct{} // capacity 1: an event was later than now

	mu     sync.Mutex
	offset time.Duration
}

// New returns a Clock that takes the clocks as equal until [Clock.Compare]. The
// throw-away runs that it needs go by workflowID; timeout bounds one request.
func New(reader Reader, workflowID string, maxSkew, timeout time.Duration, logger *slog.Logger) *Clock {
	return &Clock{reader: reader, workflowID: workflowID, maxSkew: maxSkew, timeout: timeout, logger: logger, behind: make(chan struct{}, 1)}
}

// Offset returns by how much this process's clock is certainly ahead of
// Temporal's, negative if it is behind.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// String says how the clocks are apart.
func (c *Clock) String() string {
	side, offset := "ahead of", c.Offset()
	if offset < 0 {
		side = "behind"
	}
	return fmt.Sprintf("this machine's clock is %s %s Temporal's", offset.Abs(), side)
}

// Saw takes in the time of an event that was read just now. It may be called at
// any time.
func (c *Clock) Saw(event time.Time) {
	behind := time.Until(event)
	if behind <= c.maxSkew {
		return // it says nothing: it may have been read long after
	}
	c.mu.Lock()
	c.offset = min(c.offset, -behind)
	c.mu.Unlock()
	select {
	case c.behind <- struct{}{}:
	default:
	}
}

// Agrees reports whether the clocks are close enough to admit changes.
func (c *Clock) Agrees() bool { return c.Offset().Abs() <= c.maxSkew }

// Compare compares the clocks once. A failure leaves what was known before.
func (c *Clock) Compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	reading, err := c.reader.ReadClock(ctx, c.workflowID, rand.Text())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.offset = reading.Offset()
	c.mu.Unlock()
	if !c.Agrees() {
		c.logger.Error("clock is off: "+c.String()+"; nothing is admitted until they agree", "MAX_CLOCK_SKEW", c.maxSkew)
	}
	return nil
}

// Run compares the clocks every minute, when an event was later than now, and every
// second while they are too far apart, until ctx is done.
func (c *Clock) Run(ctx context.Context) error {
	for {
		if c.Agrees() {
			timer := time.NewTimer(Every)
			select {
			case <-ctx.Done():
			case <-c.behind:
			case <-timer.C:
			}
			timer.Stop()
		}
		if err := c.Compare(ctx); err != nil && ctx.Err() == nil {
			c.logger.Warn("cannot compare clocks with Temporal; trying again", "error", err)
		}
		// Events come by the hundred a second; a comparison costs a run and a line
		// in the log.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}
