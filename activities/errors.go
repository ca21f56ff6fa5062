package activities

import (
	"errors"
	"math/rand/v2"
	"runtime/debug"
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

// fail ends the attempt; the workflow decides what becomes of it. f.Charged says
// that the failure may be the account's own: whether it is, others' successes
// tell. everybodys says that it may be everybody's, so that the breaker is told;
// but not by an account that has been set aside: that it fails again says nothing
// about anybody else, and two of them would stop everybody's calls.
func (a *attempt) fail(f contract.FailedAttempt, everybodys bool, message string, details ...any) error {
	f.At = a.clock.now()
	if f.Class == contract.ClassThrottled {
		a.deps.Health.Throttled(a.in.Account, f.At)
		f.Charged = f.Charged && a.deps.Health.ChargedThrottled(a.in.Account, a.in.LastFailure)
	} else {
		f.Charged = f.Charged && a.deps.Health.Charged(a.in.Account, a.in.LastFailure)
	}
	if everybodys && !a.in.Parked {
		a.deps.Health.Failed(a.in.Account, f)
	}
	a.deps.Metrics.Count("sync.outcomes", 1, "outcome:failed", "class:"+f.Class)
	a.deps.Log.Warn(message, append([]any{"account", a.in.Account, "run", a.syncID,
		"class", f.Class, "reason", f.Reason, "charged", f.Charged}, details...)...)
	return temporal.NewApplicationErrorWithOptions(f.Reason, contract.ErrorFailed, temporal.ApplicationErrorOptions{
		NonRetryable: true,
		Details:      []any{f},
	})
}

// caught makes a panic the attempt's failure. Where it meets everybody, in a faulty
// build, nobody succeeds and nobody is charged. What it says goes to the log only:
// it may hold anything.
func (a *attempt) caught(panicked any) error {
	return a.fail(contract.FailedAttempt{Class: contract.ClassTransient, Reason: "panic in Sync", Charged: true}, true,
		"panic", "panic", panicked, "stack", string(debug.Stack()))
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
