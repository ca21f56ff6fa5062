// Package lease derives how long anything may take before it counts as stuck.
//
// A heartbeat proves that a process breathes, a lease that it works; the two are
// configured apart. Every lease is derived from the timeouts of the steps it
// bounds, so that changing a timeout changes the lease with it, and none may be
// longer than MAX_DETECTION_DELAY.
package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Safety is by how much a lease exceeds what it bounds.
const Safety = 1.5

// LastSleep is the longest that Sync sleeps in its slot before a call; what is
// longer it hands back.
const LastSleep = 500 * time.Millisecond

// Batch is a batch of work done with a fixed concurrency: the hand-over of a full
// buffer to Temporal, say.
type Batch struct {
	Size        int
	Concurrency int
	Timeout     time.Duration // hard, per item
	Overhead    time.Duration // per item, beyond its timeout
}

// Bound is the longest the batch can take: ⌈size ÷ concurrency⌉ × (timeout + overhead).
func (b Batch) Bound() time.Duration {
	return time.Duration((b.Size+b.Concurrency-1)/b.Concurrency) * (b.Timeout + b.Overhead)
}

// Lease is the bound with safety.
func (b Batch) Lease() time.Duration { return safe(b.Bound()) }

// Largest is the largest batch whose lease is within limit.
func (b Batch) Largest(limit time.Duration) int {
	return int(float64(limit)/Safety/float64(b.Timeout+b.Overhead)) * b.Concurrency
}

// Attempt is one attempt of Sync, step by step.
type Attempt struct {
	RowCheck   time.Duration
	PermitWait time.Duration
	Upstream   time.Duration
	Write      time.Duration
}

// Bound is the longest that an attempt can take: its last sleep and every step.
func (a Attempt) Bound() time.Duration {
	return LastSleep + a.RowCheck + a.PermitWait + a.Upstream + a.Write
}

// Lease is the attempt lease: start-to-close of Sync.
func (a Attempt) Lease() time.Duration { return safe(a.Bound()) }

// Account is how long an account may fail before it is parked. Only failing
// time counts; waiting in a queue or for a permit does not.
type Account struct {
	Attempt   Attempt
	ParkAfter int
}

// Lease is the account lease: ParkAfter × (attempt lease + longest backoff).
func (a Account) Lease() time.Duration {
	return time.Duration(a.ParkAfter) * (a.Attempt.Lease() + contract.MaxBackoff)
}

func safe(d time.Duration) time.Duration { return time.Duration(float64(d) * Safety) }

// Detectable checks the account lease against the longest allowed delay until
// something stuck is seen, and names what would help.
func (a Account) Detectable(limit time.Duration) error {
	var faults []error
	if lease := a.Attempt.Lease(); lease > limit {
		faults = append(faults, config.Fault{Name: "MAX_DETECTION_DELAY", Value: limit.String(), Problem: fmt.Sprintf(
			"the attempt lease is %s = %v × (%s last sleep + %s ROW_CHECK_TIMEOUT + %s PERMIT_WAIT + %s UPSTREAM_TIMEOUT + %s WRITE_TIMEOUT); shorten one of them",
			lease, Safety, LastSleep, a.Attempt.RowCheck, a.Attempt.PermitWait, a.Attempt.Upstream, a.Attempt.Write)})
	}
	if lease := a.Lease(); lease > limit {
		most := int(limit / (a.Attempt.Lease() + contract.MaxBackoff))
		faults = append(faults, config.Fault{Name: "MAX_DETECTION_DELAY", Value: limit.String(), Problem: fmt.Sprintf(
			"the account lease is %s = %d PARK_AFTER × (%s attempt lease + %s backoff); %s",
			lease, a.ParkAfter, a.Attempt.Lease(), contract.MaxBackoff, lever(most))})
	}
	return errors.Join(faults...)
}

func lever(most int) string {
	if most < 1 {
		return "shorten the attempt's timeouts"
	}
	return fmt.Sprintf("set PARK_AFTER to %d or less", most)
}
