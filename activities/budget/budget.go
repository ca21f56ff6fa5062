package budget

import (
	"context"
	"errors"
	"time"
)

// MaxPermitAge is how old a permit may be when it is used. A process that was
// suspended between permit and call must not fire what it hoarded.
const MaxPermitAge = 50 * time.Millisecond

var (
	// ErrStale is returned by [Permit.Start] for a permit that is too old, or
	// older than the news that upstream is out. Its slot is given back already;
	// acquire another.
	ErrStale = errors.New("permit is too old to be used")
	// ErrNoPermit is returned by [Budget.Acquire] when its context ended first.
	// The context's error is wrapped as well.
	ErrNoPermit = errors.New("no permit in time")
)

// Budget hands out permits. It is safe for concurrent use, and those who wait
// are served in the order in which they came.
type Budget interface {
	// Acquire waits for a permit until ctx ends, and returns [ErrNoPermit] then.
	// Every permit must end in Start or Release.
	Acquire(ctx context.Context) (Permit, error)

	// Suspect says that upstream may be out. A budget that is shared makes sure
	// that nobody else knows so before it gives another permit.
	Suspect()
	// Suspend says that upstream is out: no permits from now on but probes. The
	// cause is one line without account data; since is when the first of the calls
	// that prove it had failed, in Temporal's time.
	Suspend(cause string, since time.Time)
	// Resume says that a call succeeded, and when it began, in Temporal's time. It
	// ends an outage, if the call was a probe.
	Resume(began time.Time)
	// Outage returns what is known of an outage; it is the same for all who
	// share the budget.
	Outage() Outage
}

// Outage is the state of the circuit breaker.
type Outage struct {
	Open bool `json:"open"`
	// Since is when it opened, by this process's clock; zero while closed.
	Since time.Time `json:"since,omitzero"`
	// Cause is what the calls that opened it failed with, "401 for everybody".
	Cause string `json:"cause,omitempty"`
}

// Permit allows exactly one call. It is used by one goroutine, except that
// Sent may be called from any. All methods but Start may be repeated.
type Permit interface {
	// Start uses the permit. On nil the caller sends its request at once; on
	// [ErrStale] it must not.
	Start() error
	// Sent says that the request is on its way, or never will be. Until then
	// the call counts as if it were sent right now, so a call without Sent
	// occupies its slot for ever.
	Sent()
	// Throttled says that this call was answered by a demand for fewer calls,
	// to be left alone for retryAfter (zero: upstream did not say).
	Throttled(retryAfter time.Duration)
	// Release gives back a permit that was not started.
	Release()
}
