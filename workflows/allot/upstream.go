package allot

import (
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// decreaseEvery bounds how often demands for fewer calls halve the limit:
	// ten answers to one burst would leave a thousandth. Calls that were under
	// way when it was halved say nothing about the new rate.
	decreaseEvery = 2 * time.Second
	// recovery is the time in which a halved limit climbs back by half of the
	// budget.
	recovery = 30 * time.Second
	// maxPause caps what a single Retry-After can do to everybody.
	maxPause = time.Minute
	// streak is how close together decreases belong to one trouble.
	streak = 10 * time.Second
)

// throttle takes in a worker's report about answers that asked for fewer calls.
func throttle(s *contract.BudgetState, now time.Time, r contract.ShareRequest) {
	if until := now.Add(min(time.Duration(r.RetryAfter), maxPause)); until.After(s.PausedUntil) && r.RetryAfter > 0 {
		s.PausedUntil = until
	}
	budget := Budget(s)
	if r.Throttled == 0 || budget == 0 || s.Breaker.Open || now.Sub(s.DecreasedAt) < decreaseEvery {
		return
	}
	if now.Sub(s.DecreasedAt) > streak {
		s.AllowedBefore = s.Allowed
	}
	s.Allowed = max(s.Allowed/2, 1/float64(budget))
	s.DecreasedAt = now
}

// recoverAllowed adds what was regained since it was last called; nothing is
// while paused or while the breaker is open.
func recoverAllowed(s *contract.BudgetState) {
	from := s.AllowedAt
	if from.Before(s.PausedUntil) {
		from = s.PausedUntil
	}
	if s.Now.After(from) && !s.Breaker.Open {
		s.Allowed = min(1, s.Allowed+0.5*float64(s.Now.Sub(from))/float64(recovery))
	}
	if s.Now.After(s.AllowedAt) {
		s.AllowedAt = s.Now
	}
}

// turn opens or closes the breaker on a worker's observation. One that was made
// before the latest turn is ignored: a worker whose five failures precede the
// probe that succeeded would open the breaker again.
func turn(s *contract.BudgetState, now time.Time, event *contract.BreakerEvent) {
	if event == nil || event.Epoch != s.Breaker.Epoch || event.Open == s.Breaker.Open {
		return
	}
	if event.Open {
		s.Breaker = contract.Breaker{Open: true, Since: now, Cause: event.Cause, Epoch: s.Breaker.Epoch + 1}
		s.NextProbe = now.Add(ProbeEvery)
		return
	}
	// Demands for fewer calls right before an outage were its first signs (503),
	// and say nothing about the rate that upstream bears once it is back.
	if s.Breaker.Since.Sub(s.DecreasedAt) < streak {
		s.Allowed = max(s.Allowed, s.AllowedBefore)
	}
	s.Breaker, s.NextProbe = contract.Breaker{Epoch: s.Breaker.Epoch + 1}, time.Time{}
	s.AllowedAt = now
}

// probeDue reports whether the request's answer is to be the fleet's next probe.
// A probe is a call like any other: it waits for Retry-After, for a budget that
// is not 0, and until the leases of others leave room for it.
func probeDue(s *contract.BudgetState, now time.Time, r contract.ShareRequest) bool {
	return s.Breaker.Open && r.Demand > 0 &&
		!now.Before(s.NextProbe) && !now.Before(s.PausedUntil) && !now.Before(s.OpenAt) &&
		free(s, r.Worker, Budget(s)) >= 1
}

// nextProbe keeps the rhythm: counted from when the last one was due, not from
// when somebody asked for it, unless that was long after.
func nextProbe(due, now time.Time) time.Time {
	if now.Sub(due) < 500*time.Millisecond {
		return due.Add(ProbeEvery)
	}
	return now.Add(ProbeEvery)
}
