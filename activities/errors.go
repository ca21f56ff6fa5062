package activities

import (
	"errors"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// errStopping is the cause for which waits end when the worker shuts down.
var errStopping = errors.New("worker is stopping")

// Reasons of a deferral, as the metric's tag.
const (
	deferSettle   = "settle"   // too early
	deferClock    = "clock"    // the row was called in the future
	deferStore    = "store"    // row check impossible
	deferPermit   = "permit"   // overload
	deferOutage   = "outage"   // breaker open
	deferShutdown = "shutdown" // worker stopping
)

// deferred hands the attempt back, to come again after delay.
func (a *attempt) deferred(reason, message string, delay time.Duration) error {
	a.deps.Metrics.Count("sync.deferred", 1, "reason:"+reason)
	return temporal.NewApplicationErrorWithOptions(message, contract.ErrorDeferred, temporal.ApplicationErrorOptions{
		NextRetryDelay: max(delay, time.Millisecond), // zero would mean the retry policy's own
		Category:       temporal.ApplicationErrorCategoryBenign,
	})
}

// someSeconds is the delay where nobody knows how long it will take: 1 to 5
// seconds, so that a fleet does not come back at once.
func someSeconds() time.Duration {
	return time.Second + rand.N(4*time.Second)
}

// failed ends the attempt; the workflow decides what becomes of it.
func (a *attempt) failed(f contract.FailedAttempt) error {
	f.At = a.clock.now()
	a.deps.Metrics.Count("sync.outcomes", 1, "outcome:failed", "class:"+f.Class)
	return temporal.NewApplicationErrorWithOptions(f.Reason, contract.ErrorFailed, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Details:      []any{f},
	})
}

// asUpstream returns what a Fetcher's error says. One that is not an
// [upstream.Error] is transient, and its text is not repeated: it may hold the
// account.
func asUpstream(err error) *upstream.Error {
	var e *upstream.Error
	if errors.As(err, &e) {
		return e
	}
	return &upstream.Error{Class: contract.ClassTransient, Reason: "call failed", Err: err}
}
