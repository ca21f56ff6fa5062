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

// lostFactor is by how much more often than PARK_AFTER an account may lose its
// attempts before it is parked. A worker that crashes or hangs takes the attempts
// of all its accounts with it, so this is no account's fault; but an account that
// kills every worker it meets must end somewhere.
const lostFactor = 10

// classify turns what the activity ended with into an attempt to be counted.
func classify(err error, now time.Time) contract.FailedAttempt {
	var application *temporal.ApplicationError
	if errors.As(err, &application) && application.Type() == contract.ErrorFailed {
		var attempt contract.FailedAttempt
		if application.Details(&attempt) == nil {
			return attempt
		}
	}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) {
		return contract.FailedAttempt{
			Class: contract.ClassLease, At: now,
			Reason: "attempt outlived its lease: " + timeout.TimeoutType().String(),
		}
	}
	// A panic that Sync did not catch, or an answer that this version does not
	// understand: a fault of a build, which meets everybody. Its text may hold
	// anything.
	return contract.FailedAttempt{Class: contract.ClassLease, At: now, Reason: "attempt ended without a verdict"}
}

// nextFailure adds a failed attempt to what the account carries already.
//
// Count starts at one with the first failure, whoever's it was, and grows only
// by charged ones. During an outage nobody succeeds, nothing is charged, and
// Count stays where it was however long it lasts.
func nextFailure(previous *contract.Failure, attempt contract.FailedAttempt, parkAfter int) *contract.Failure {
	next := contract.Failure{Count: 1, Since: attempt.At, ChargedAt: attempt.At}
	refusedAgain := false
	if previous != nil {
		next = *previous
		refusedAgain = attempt.Class == contract.ClassRefused && previous.Class == contract.ClassRefused
		if attempt.Charged {
			next.Count++
			next.ChargedAt = attempt.At
		}
	}
	next.Tries++
	if attempt.Class == contract.ClassLease {
		next.Lost++
	}
	next.Last, next.Class, next.Reason = attempt.At, attempt.Class, attempt.Reason
	switch {
	case next.Parked:
		next.ParkedTries++
	case next.Lost >= lostFactor*parkAfter:
		next.Parked = true
	case !attempt.Charged:
	case next.Count >= parkAfter, refusedAgain:
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
