package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// openAccounts: one account alone proves nothing about upstream.
	openAccounts = 2
	// openAfter failures in a row open the breaker, once the row has lasted
	// openFor: that everything under way breaks at one moment is no outage yet.
	openAfter = 10
	openFor   = time.Second
	// seldomAfter do where it took seldomFor to make them: a worker that calls
	// seldom, because accounts wait out their backoff, would need minutes for more.
	seldomAfter = 5
	seldomFor   = 5 * time.Second
	// mixedAfter failures it takes where upstream fails in part, because chance
	// alone makes rows then: with half of the calls failing, one of 25 begins once
	// in 67 million calls, with 70% once in 25,000.
	mixedAfter = 25
	// unmixed is how many successes in a row end that.
	unmixed = 16

	// A row of suspectAfter failures that has lasted suspectFor is a reason to ask
	// before calling again. Both are below what opens the breaker elsewhere, so
	// that all workers ask by the time one of them knows.
	suspectAfter = 2
	suspectFor   = openFor / 2
)

// ErrOutage is returned by [Monitor.Acquire] when the breaker was open until
// the caller's context ended. The error says what upstream answered.
var ErrOutage = errors.New("upstream is out")

// State is what the breaker looks like from outside.
type State = budget.Outage

// Monitor finds out that upstream is out, stands in front of the budget that
// everybody is told by, and judges whose fault a failure was. It is safe for
// concurrent use. Take [NewMonitor].
type Monitor struct {
	budget budget.Budget
	log    *slog.Logger

	mu        sync.Mutex
	succeeded latest // calls that succeeded, by when they began, in server time
	throttled latest // demands for fewer calls, in server time
	streak    streak // the failures since the last success
	mixed     int    // successes still to come until upstream counts as healthy
	outage    bool   // the budget's breaker was open at the latest failure
}

// NewMonitor returns a Monitor that has seen nothing, in front of b. It starts
// no goroutine.
func NewMonitor(b budget.Budget, log *slog.Logger) *Monitor {
	return &Monitor{budget: b, log: log}
}

// State returns the breaker's state, which is the budget's.
func (m *Monitor) State() State { return m.budget.Outage() }

// Acquire returns a permit of the budget. While the breaker is open those are
// probes only, and the error is [ErrOutage] when ctx ends.
func (m *Monitor) Acquire(ctx context.Context) (budget.Permit, error) {
	p, err := m.budget.Acquire(ctx)
	if err == nil {
		return p, nil
	}
	if outage := m.budget.Outage(); outage.Open {
		return nil, fmt.Errorf("%w: %s: %w", ErrOutage, outage.Cause, err)
	}
	return nil, err
}

// Succeeded reports that a call for the account, and all that belongs to it,
// went well. The call began at the given server time: what it proves, it proves of
// later than that.
func (m *Monitor) Succeeded(account string, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded.add(account, began)
	if m.mixed > 0 {
		m.mixed--
	}
	m.ended()
	m.budget.Resume(began)
}

// ended forgets the failures in a row: a call succeeded. The caller holds mu.
func (m *Monitor) ended() {
	if m.streak.distinct >= openAccounts {
		m.mixed = unmixed
	}
	m.streak = streak{}
}

// Failed reports a call that failed for a reason that may be everybody's. A
// demand for fewer calls (429) is none: upstream is there, and the budget lowers
// the rate. The attempt's reason becomes the breaker's cause.
func (m *Monitor) Failed(account string, attempt contract.FailedAttempt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := m.budget.Outage().Open
	if m.outage && !open {
		m.streak = streak{} // another worker's probe succeeded, or its success refuted a third one's proof
	}
	m.outage = open
	if m.mixed > 0 {
		m.mixed = unmixed
	}
	m.streak.add(account, attempt)
	if m.streak.distinct < openAccounts {
		return
	}
	lasted := time.Since(m.streak.began)
	calls, lasts, suspect := openAfter, openFor, suspectFor
	switch {
	case m.mixed > 0:
		calls = mixedAfter
	case lasted >= seldomFor:
		calls = seldomAfter
	case m.streak.denied:
		lasts, suspect = 0, 0 // no accident, and not to be repeated: it can lock us out
	}
	switch {
	case open: // the budget knows
	case m.streak.calls >= calls && lasted >= lasts:
		m.log.Error("upstream fails for everybody", "cause", m.streak.cause())
		m.outage = true
		m.budget.Suspend(m.streak.cause(), m.streak.since)
	case m.streak.calls >= suspectAfter && lasted >= suspect:
		m.budget.Suspect()
	}
}

// Throttled notes that the account's call was answered by a demand for fewer
// calls at the given server time.
func (m *Monitor) Throttled(account string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.throttled.add(account, at)
}

// Charged reports whether a failure is the account's own: a call for some other
// account began after since, the server time of this account's previous failure,
// and succeeded. A first failure (zero since) is never charged: there is nothing
// yet to compare it with.
func (m *Monitor) Charged(account string, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.succeeded.otherThan(account, since)
}

// ChargedThrottled is [Monitor.Charged] for a demand for fewer calls. Such a
// demand is overload, which is nobody's own, if it met another account as well
// since; an account that alone is told so while others succeed has a problem of
// its own, and must not wait for ever.
func (m *Monitor) ChargedThrottled(account string, since time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.succeeded.otherThan(account, since) && !m.throttled.otherThan(account, since)
}
