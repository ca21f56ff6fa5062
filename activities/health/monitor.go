package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

	// probeEvery is how often an open breaker lets one call through, ±20% so
	// that a fleet does not probe in step.
	probeEvery = 5 * time.Second
)

// ErrOutage is returned by [Monitor.Acquire] when the breaker was open until
// the caller's context ended. The error says what upstream answered.
var ErrOutage = errors.New("upstream is out")

// State is what the breaker looks like from outside.
type State struct {
	Open bool `json:"open"`
	// Since is when it opened, by this process's clock; zero while closed.
	Since time.Time `json:"since,omitzero"`
	// Cause is what the calls that opened it failed with, "401 for everybody".
	Cause string `json:"cause,omitempty"`
}

// Monitor is a circuit breaker in front of a budget, and the judge of whose
// fault a failure was. It is safe for concurrent use. Take [NewMonitor].
type Monitor struct {
	budget  budget.Budget
	metrics telemetry.Metrics
	log     *slog.Logger

	mu        sync.Mutex
	succeeded latest        // successes, in server time
	throttled latest        // demands for fewer calls, in server time
	streak    streak        // the failures since the last success
	state     State         // as it is
	changed   chan struct{} // closed and replaced whenever state.Open changes
	nextProbe time.Time     // earliest next probe; only while open
}

// NewMonitor returns a closed breaker in front of b. It starts no goroutine.
func NewMonitor(b budget.Budget, metrics telemetry.Metrics, log *slog.Logger) *Monitor {
	m := &Monitor{budget: b, metrics: metrics, log: log, changed: make(chan struct{})}
	metrics.Gauge("upstream.breaker", 0)
	return m
}

// State returns the breaker's state.
func (m *Monitor) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Acquire implements [budget.Budget]. While the breaker is open it returns
// permits for probes only, and [ErrOutage] when ctx ends.
func (m *Monitor) Acquire(ctx context.Context) (budget.Permit, error) {
	for {
		probe, err := m.admit(ctx)
		if err != nil {
			return nil, err
		}
		p, err := m.budget.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		// The breaker may have opened while this caller stood in the budget's
		// queue: without the second look, everybody in that queue would still
		// call.
		if probe || !m.State().Open {
			return p, nil
		}
		p.Release()
	}
}

// admit waits until the breaker is closed, or until this caller is the next
// probe, which it reports.
func (m *Monitor) admit(ctx context.Context) (probe bool, err error) {
	for {
		m.mu.Lock()
		if !m.state.Open {
			m.mu.Unlock()
			return false, nil
		}
		now := time.Now()
		wait := m.nextProbe.Sub(now)
		if wait <= 0 {
			m.nextProbe = now.Add(probeInterval())
			m.mu.Unlock()
			return true, nil
		}
		changed, cause := m.changed, m.state.Cause
		m.mu.Unlock()

		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, fmt.Errorf("%w: %s: %w", ErrOutage, cause, context.Cause(ctx))
		}
		timer.Stop()
	}
}

func probeInterval() time.Duration {
	return time.Duration(float64(probeEvery) * (0.8 + 0.4*rand.Float64()))
}

// Succeeded reports that a call for the account, and all that belongs to it,
// went well at the given server time.
func (m *Monitor) Succeeded(account string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded.add(account, at)
	m.streak = streak{}
	if m.state.Open {
		m.log.Info("upstream is back: breaker closed", "out_for", time.Since(m.state.Since), "cause", m.state.Cause)
		m.turn(State{})
	}
}

// Failed reports a call that failed. The reason is one line without account
// data, equal for equal failures; it becomes the breaker's cause.
func (m *Monitor) Failed(account string, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streak.add(account, reason)
	if m.state.Open {
		m.state.Cause = m.streak.cause()
		return
	}
	if m.streak.calls >= openAfter && m.streak.distinct >= openAccounts {
		m.nextProbe = time.Now().Add(probeInterval())
		m.turn(State{Open: true, Since: time.Now(), Cause: m.streak.cause()})
		m.log.Error("upstream is out: breaker opened, calling only once per "+probeEvery.String(), "cause", m.state.Cause)
	}
}

// Throttled notes that the account's call was answered by a demand for fewer
// calls at the given server time. Report it to Failed as well.
func (m *Monitor) Throttled(account string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.throttled.add(account, at)
}

// turn changes the state and wakes those who wait. The caller holds mu.
func (m *Monitor) turn(s State) {
	m.state = s
	close(m.changed)
	m.changed = make(chan struct{})
	open := 0.0
	if s.Open {
		open = 1
	}
	m.metrics.Gauge("upstream.breaker", open)
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
