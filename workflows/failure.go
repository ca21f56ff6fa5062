package workflows

import (
	"errors"
	"hash/fnv"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Backoffs between attempts. The first pair is part of the account lease, see
// design.md §6.
const (
	minBackoff       = time.Second
	maxBackoff       = contract.MaxBackoff
	minParkedBackoff = 10 * time.Second
	maxParkedBackoff = 10 * time.Minute
)

// classify turns what the activity ended with into an attempt to be counted.
// Only Sync itself knows whether others succeeded meanwhile; an attempt that
// outlived its lease or its worker cannot say, and is counted: every step of
// Sync has a timeout of its own, so neither overload nor an outage ends there.
func classify(err error, now time.Time) contract.FailedAttempt {
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == contract.ErrorFailed {
		var attempt contract.FailedAttempt
		if application.Details(&attempt) == nil {
			return attempt
		}
	}
	attempt := contract.FailedAttempt{Class: contract.ClassTransient, At: now, Charged: true, Reason: "sync ended unexpectedly: " + err.Error()}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		attempt.Class = contract.ClassLease
		attempt.Reason = "attempt outlived its lease: " + timeout.TimeoutType().String()
	}
	return attempt
}

// nextFailure adds a failed attempt to what the account carries already.
//
// Count starts at one with the first failure, whoever's it was, and grows only
// by charged ones. During an outage nobody succeeds, nothing is charged, and
// Count stays at one however long it lasts.
func nextFailure(previous *contract.Failure, attempt contract.FailedAttempt, parkAfter int) *contract.Failure {
	next := contract.Failure{Count: 1, Since: attempt.At}
	if previous != nil {
		next = *previous
		if attempt.Charged {
			next.Count++
		}
	}
	next.Tries++
	next.Last, next.Class, next.Reason = attempt.At, attempt.Class, attempt.Reason
	switch {
	case next.Parked:
		next.ParkedTries++
	case !attempt.Charged:
	case next.Count >= parkAfter, attempt.Class == contract.ClassRefused && previous != nil:
		// A refusal will not pass by itself, but is believed only the second
		// time: the first may have been everybody's.
		next.Parked = true
	}
	return &next
}

// backoff returns how long the next attempt waits: exponential, spread by up to
// a fifth downwards so that accounts that failed together do not return
// together, and never less than upstream asked for, within the longest backoff
// of all. The spread is derived from the run ID, as workflow code must be.
func backoff(failure contract.Failure, attempt contract.FailedAttempt, runID string) time.Duration {
	base, limit, tries := minBackoff, maxBackoff, failure.Tries
	if failure.Parked {
		base, limit, tries = minParkedBackoff, maxParkedBackoff, failure.ParkedTries+1
	}
	wait := limit
	if doublings := tries - 1; doublings < 16 {
		wait = min(limit, base<<doublings)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(runID))
	wait -= wait / 5 * time.Duration(hash.Sum32()%1000) / 1000
	return max(wait, min(time.Duration(attempt.RetryAfter), maxParkedBackoff))
}
