package budget

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/internal/telemetry"
)

const (
	// window is a second and what a request's way to upstream may vary by: calls
	// that leave evenly can arrive a little closer together. It costs 3% of the
	// rate.
	window = time.Second + 30*time.Millisecond

	// maxPause caps what a single Retry-After can do to everybody.
	maxPause = time.Minute
	// defaultPause is taken where upstream did not say for how long.
	defaultPause = time.Second

	// recovery is the time in which a halved rate climbs back by half of the
	// full rate.
	recovery = 30 * time.Second
)

// Limiter is a [Budget] for one process: never more than a rate of call starts
// in any sliding second, at least 95% of it when there is always somebody
// waiting. The zero value is not usable; take [NewLimiter].
type Limiter struct {
	metrics telemetry.Metrics
	rate    int // the configured rate; 0 pauses

	mu      sync.Mutex
	waiters list.List   // of *waiter, first come first served
	open    int         // permits held or started, not yet sent
	sent    []time.Time // ascending; those of the last window
	timer   *time.Timer // calls serve when the next slot is due; nil without waiters

	allowed      float64   // the rate now: halved when throttled, recovering
	recoveredAt  time.Time // when allowed was last brought up to date
	decreasedAt  time.Time // when it was last halved
	pausedUntil  time.Time
	reportedRate float64
}

type waiter struct {
	granted chan *permit // capacity 1: a grant never waits for its receiver
}

// NewLimiter returns a Limiter of cfg.UpstreamRPS calls a second. It starts no
// goroutine.
func NewLimiter(cfg Config, metrics telemetry.Metrics) *Limiter {
	l := &Limiter{metrics: metrics, rate: cfg.UpstreamRPS, allowed: float64(cfg.UpstreamRPS), reportedRate: -1}
	l.report()
	return l
}

// Limit returns the rate that holds now, in calls per second: the configured
// one, less while upstream asks for fewer, 0 while it is paused.
func (l *Limiter) Limit() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.recover(now)
	if now.Before(l.pausedUntil) {
		return 0
	}
	return l.allowed
}

// Acquire implements [Budget].
func (l *Limiter) Acquire(ctx context.Context) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPermit, err)
	}
	w := &waiter{granted: make(chan *permit, 1)}
	l.mu.Lock()
	element := l.waiters.PushBack(w)
	l.serve()
	l.mu.Unlock()

	select {
	case p := <-w.granted:
		return p, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case p := <-w.granted: // granted between the context's end and the lock
		l.open--
		p.state = ended
	default:
		l.waiters.Remove(element)
	}
	l.serve()
	return nil, fmt.Errorf("%w: %w", ErrNoPermit, context.Cause(ctx))
}

// serve grants what may be granted and sets the timer for what comes next.
// The caller holds mu.
func (l *Limiter) serve() {
	now := time.Now()
	l.recover(now)
	l.report()
	for len(l.sent) > 0 && now.Sub(l.sent[0]) >= window {
		l.sent = l.sent[1:]
	}
	for l.waiters.Len() > 0 && !now.Before(l.pausedUntil) && l.open+len(l.sent) < l.slots() {
		front := l.waiters.Front()
		l.waiters.Remove(front)
		l.open++
		front.Value.(*waiter).granted <- &permit{limiter: l, at: now}
	}

	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.waiters.Len() == 0 || l.slots() == 0 {
		return
	}
	var due time.Time
	switch {
	case now.Before(l.pausedUntil):
		due = l.pausedUntil
	case l.allowed < float64(l.rate):
		// A recovering rate opens slots of its own; so look again soon. At most
		// a few times a second, and only while it recovers.
		due = now.Add(window / 4)
		if len(l.sent) > 0 && l.sent[0].Add(window).Before(due) {
			due = l.sent[0].Add(window)
		}
	case len(l.sent) > 0:
		due = l.sent[0].Add(window)
	default:
		return // all slots are open permits; each of them calls serve as it ends
	}
	l.timer = time.AfterFunc(due.Sub(now), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.serve()
	})
}

// slots is how many calls the current rate allows in a window.
func (l *Limiter) slots() int { return int(l.allowed) }

// recover adds to a lowered rate what it regained since the last look.
func (l *Limiter) recover(now time.Time) {
	from := l.recoveredAt
	if from.Before(l.pausedUntil) {
		from = l.pausedUntil // no regaining while paused
	}
	if l.allowed < float64(l.rate) && now.After(from) {
		l.allowed += float64(l.rate) / 2 * float64(now.Sub(from)) / float64(recovery)
		l.allowed = math.Min(l.allowed, float64(l.rate))
	}
	l.recoveredAt = now
}

// throttled halves the rate, once for all calls that were under way together,
// and pauses until retryAfter has passed.
func (l *Limiter) throttled(startedAt time.Time, retryAfter time.Duration) {
	if retryAfter <= 0 {
		retryAfter = defaultPause
	}
	now := time.Now()
	until := now.Add(min(retryAfter, maxPause))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recover(now)
	if until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
	// A call that had started before the last decrease says nothing about the
	// rate since: ten answers to one burst would leave a thousandth.
	if l.rate > 0 && startedAt.After(l.decreasedAt) {
		l.allowed = math.Max(1, l.allowed/2)
		l.decreasedAt = now
	}
	l.serve()
}

func (l *Limiter) report() {
	if l.allowed != l.reportedRate {
		l.reportedRate = l.allowed
		l.metrics.Gauge("budget.limit", l.allowed)
	}
}
