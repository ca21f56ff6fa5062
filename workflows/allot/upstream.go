package allot

import (
	"slices"
	"strings"
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
	// trouble is within what time decreases, and an outage after them, are one.
	trouble = 10 * time.Second
	// reckoning is by how much two workers may differ in what they take for
	// Temporal's time: each learns it as an attempt begins, a little late.
	reckoning = 250 * time.Millisecond
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
	if now.Sub(s.DecreasedAt) > trouble {
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
// before the latest turn is ignored: a worker whose failures precede the probe
// that succeeded would open the breaker again.
func turn(s *contract.BudgetState, now time.Time, w *contract.BudgetWorker, event *contract.BreakerEvent) {
	if event == nil {
		return
	}
	if !event.Open {
		w.Out = nil // its own: its requests come in order, so this needs no epoch
	}
	if event.Epoch != s.Breaker.Epoch || event.Open == s.Breaker.Open {
		return
	}
	if !event.Open {
		shut(s, now)
		return
	}
	switch {
	case w.Out != nil:
	case refuted(s, w.Worker, event.Since): // at once, and no turn: another's proof of the same moment is not out of date by it
		w.Out, w.NextProbe = alone(now, event.Cause), now.Add(ProbeEvery)
	default:
		s.Breaker = contract.Breaker{Open: true, Since: now, Cause: event.Cause, Epoch: s.Breaker.Epoch + 1}
		s.NextProbe = now.Add(ProbeEvery)
		s.OpenedBy, s.FailingSince = w.Worker, event.Since
	}
}

// shut closes the breaker.
func shut(s *contract.BudgetState, now time.Time) {
	// Demands for fewer calls right before an outage were its first signs (503),
	// and say nothing about the rate that upstream bears once it is back.
	if s.Breaker.Since.Sub(s.DecreasedAt) < trouble {
		s.Allowed = max(s.Allowed, s.AllowedBefore)
	}
	s.Breaker, s.NextProbe = contract.Breaker{Epoch: s.Breaker.Epoch + 1}, time.Time{}
	s.OpenedBy, s.FailingSince = "", time.Time{}
	s.AllowedAt = now
}

// refute closes a breaker that was opened for the whole fleet by a worker that
// alone has the trouble: no way out of its machine, say, or a token of its own that
// has expired. It takes a call of another worker that succeeded and began after the
// first failure of the proof, in Temporal's time as both workers reckon it. From
// then on upstream is out for that one worker.
//
// The success may be known when the breaker opens, or be told only afterwards: each
// of the others goes on calling until it asks again, and says in that very request
// how it fared. So a fleet at work does not stop, and an outage is known as early
// as ever.
func refute(s *contract.BudgetState, now time.Time) {
	if !s.Breaker.Open || !refuted(s, s.OpenedBy, s.FailingSince) {
		return
	}
	if i, known := find(s, s.OpenedBy); known {
		s.Workers[i].Out, s.Workers[i].NextProbe = alone(s.Breaker.Since, s.Breaker.Cause), s.NextProbe
	}
	shut(s, now)
}

// refuted reports whether a call of another worker began since, and succeeded.
func refuted(s *contract.BudgetState, openedBy string, since time.Time) bool {
	return !since.IsZero() && slices.ContainsFunc(s.Workers, func(w contract.BudgetWorker) bool {
		return w.Worker != openedBy && w.Succeeded.After(since.Add(reckoning))
	})
}

func alone(since time.Time, cause string) *contract.Breaker {
	return &contract.Breaker{Open: true, Since: since, Cause: "this worker alone: " + strings.TrimSuffix(cause, " for everybody")}
}

// probes returns when the worker's next probe is due, nil if it needs none: the
// fleet's while the breaker is open, else its own.
func probes(s *contract.BudgetState, w *contract.BudgetWorker) *time.Time {
	switch {
	case s.Breaker.Open:
		return &s.NextProbe
	case w.Out != nil:
		return &w.NextProbe
	}
	return nil
}

// probeDue reports whether the request's answer is to be the next probe. A probe is
// a call like any other: it waits for Retry-After, for a budget that is not 0, and
// until the leases of others leave room for it.
func probeDue(s *contract.BudgetState, now, next time.Time, r contract.ShareRequest) bool {
	return r.Demand > 0 &&
		!now.Before(next) && !now.Before(s.PausedUntil) && !now.Before(s.OpenAt) &&
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
