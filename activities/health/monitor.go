package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

const (
	// openAfter failures in a row open the breaker, if they are of at least
	// openAccounts accounts: one account alone proves nothing about upstream.
	openAfter    = 5
	openAccounts = 2

	// suspectAfter failures in a row are a reason to ask before calling again.
	suspectAfter = 2
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
	succeeded latest // successes, in server time
	throttled latest // demands for fewer calls, in server time
	streak    streak // the failures since the last success
	outage    bool   // the budget's breaker was open at the latest failure
}

// NewMonitor returns a Monitor that has seen nothing, in front of b. It starts
// no goroutine.
func NewMonitor(b budget.Budget, _ telemetry.Metrics, log *slog.Logger) *Monitor {
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
// went well at the given server time.
func (m *Monitor) Succeeded(account string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded.add(account, at)
	m.streak = streak{}
	m.budget.Resume()
}

// Failed reports a call that failed. The reason is one line without account
// data, equal for equal failures; it becomes the breaker's cause.
func (m *Monitor) Failed(account string, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	open := m.budget.Outage().Open
	if m.outage && !open {
		m.streak = streak{} // another worker's probe succeeded
	}
	m.outage = open
	m.streak.add(account, reason)
	switch {
	case m.streak.calls >= openAfter && m.streak.distinct >= openAccounts:
		if !open {
			m.log.Error("upstream fails for everybody", "cause", m.streak.cause())
		}
		m.outage = true
		m.budget.Suspend(m.streak.cause())
	case m.streak.calls >= suspectAfter && !open:
		m.budget.Suspect()
	}
}

// Throttled notes that the account's call was answered by a demand for fewer
// calls at the given server time. Report it to Failed as well.
func (m *Monitor) Throttled(account string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.throttled.add(account, at)
}

// Charged reports whether a failure is the account's own: some other account
// succeeded after since, the server time of this account's previous failure. A
// first failure (zero since) is never charged: there is nothing yet to compare
// it with.
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
