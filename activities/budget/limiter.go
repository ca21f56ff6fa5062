package budget

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/internal/telemetry"
)

const (
	// window is a second and what a request's way to upstream may vary by: calls
	// that leave evenly can arrive a little closer together. It costs 1% of the
	// rate; timers that are late cost about as much again.
	window = time.Second + 10*time.Millisecond

	// evenly is the part of a window over which as many permits are given as it
	// allows. Without that they come in bursts, once a window: a burst into an
	// upstream that has just gone out is many calls that need not have been made.
	// It is less than all of the window, so that what is left over is caught up.
	evenly = window * 8 / 10
	// early is how much a permit may come before its time, because timers come
	// after theirs.
	early = 20 * time.Millisecond

	// maxPause caps what a single Retry-After can do to everybody.
	maxPause = time.Minute
	// defaultPause is taken where upstream did not say for how long.
	defaultPause = time.Second
)

// limiter keeps a share: never more call starts in any sliding second than the
// limit that was in force, at least 95% of it when there is always somebody waiting.
// It begins without a grant.
//
// The limit may change while calls are under way. What counts are the calls that
// may fall into a window that ends now or later: those sent in the last window, and
// those with a permit that are not sent yet. A permit is given only while that count
// is below the limit of this moment. So a lower limit holds for
// new permits at once, and what had been permitted under the old one is never
// more than it allowed.
type limiter struct {
	metrics telemetry.Metrics
	// Hooks of the [Fleet], called without a lock; nil in tests.
	waiting   func(demand int)               // somebody has to wait
	throttled func(retryAfter time.Duration) // upstream asked for fewer calls

	mu      sync.Mutex
	waiters list.List   // of *waiter, first come first served
	open    int         // permits held or started, not yet sent
	sent    []time.Time // ascending; those of the last window
	timer   *time.Timer // calls serve when the next slot is due; nil without waiters

	grant       grant
	next        time.Time // when evenly gives the next permit
	pausedUntil time.Time // upstream asked for it
	heldUntil   time.Time // see Suspect
	outage      Outage
	era         int // grows as an outage begins; older permits are void
	demand      demand
}

// grant is what may be called.
type grant struct {
	limit int       // calls in a window
	until time.Time // none from then on; zero: no end
	left  int       // calls in all; negative: no bound
	id    int       // tells one grant from the next
}

type waiter struct {
	granted chan *permit // capacity 1: a grant never waits for its receiver
}

// Acquire is [Budget.Acquire].
func (l *limiter) Acquire(ctx context.Context) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPermit, err)
	}
	w := &waiter{granted: make(chan *permit, 1)}
	l.mu.Lock()
	element := l.waiters.PushBack(w)
	l.serve()
	wants := l.demand.value(time.Now(), l.grant.limit)
	l.mu.Unlock()

	select {
	case p := <-w.granted:
		return p, nil
	default:
	}
	if l.waiting != nil {
		l.waiting(wants)
	}
	select {
	case p := <-w.granted:
		return p, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case p := <-w.granted: // granted between the context's end and the lock
		p.release()
	default:
		l.waiters.Remove(element)
		l.serve()
	}
	return nil, fmt.Errorf("%w: %w", ErrNoPermit, context.Cause(ctx))
}

// serve grants what may be granted and sets the timer for what comes next.
// The caller holds mu.
func (l *limiter) serve() {
	now := time.Now()
	l.forget(now)
	l.demand.see(now, l.open+len(l.sent)+l.waiters.Len())
	for l.waiters.Len() > 0 && l.may(now) {
		front := l.waiters.Front()
		l.waiters.Remove(front)
		l.open++
		if l.grant.left > 0 {
			l.grant.left--
		}
		if least := now.Add(-early); l.next.Before(least) {
			l.next = least
		}
		l.next = l.next.Add(l.grant.spacing())
		front.Value.(*waiter).granted <- &permit{limiter: l, at: now, era: l.era, grant: l.grant.id}
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.waiters.Len() == 0 {
		return
	}
	if l.short(now) {
		l.demand.lack(now)
	}
	due, ok := l.due(now)
	if !ok {
		return // nothing but a permit's end or another grant can change it, and both call serve
	}
	l.timer = time.AfterFunc(due.Sub(now), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.serve()
	})
}

// forget drops the calls that no window from now on can hold.
func (l *limiter) forget(now time.Time) {
	for len(l.sent) > 0 && now.Sub(l.sent[0]) >= window {
		l.sent = l.sent[1:]
	}
}

// may reports whether one more permit may be given now.
func (l *limiter) may(now time.Time) bool {
	if now.Before(l.pausedUntil) || now.Before(l.heldUntil) || now.Before(l.next) || l.grant.ended(now) || l.grant.left == 0 {
		return false
	}
	return l.open+len(l.sent) < l.grant.limit
}

// short reports whether it takes a greater limit to serve those who wait sooner.
func (l *limiter) short(now time.Time) bool {
	return l.waiters.Len() > 0 && (l.grant.ended(now) || l.open+len(l.sent) >= l.grant.limit)
}

func (g grant) ended(now time.Time) bool { return !g.until.IsZero() && elapsed(g.until, now) >= 0 }

func (g grant) spacing() time.Duration { return evenly / time.Duration(max(1, g.limit)) }

// due returns when the next permit can be given by the passing of time alone.
func (l *limiter) due(now time.Time) (time.Time, bool) {
	if l.grant.limit == 0 || l.grant.left == 0 || l.grant.ended(now) {
		return time.Time{}, false
	}
	due := now
	for _, t := range []time.Time{l.pausedUntil, l.heldUntil, l.next} {
		if t.After(due) {
			due = t
		}
	}
	if excess := l.open + len(l.sent) - l.grant.limit; excess >= 0 {
		if excess >= len(l.sent) {
			return time.Time{}, false // it takes an open permit to be sent first
		}
		if t := l.sent[excess].Add(window); t.After(due) {
			due = t
		}
	}
	return due, true
}

// Outage is [Budget.Outage].
func (l *limiter) Outage() Outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage
}

// setOutage turns the breaker, or brings its cause up to date; turned says
// which. The caller holds mu.
func (l *limiter) setOutage(open bool, cause string) (turned bool) {
	if open == l.outage.Open {
		l.outage.Cause = cause
		return false
	}
	l.outage = Outage{}
	gauge := 0.0
	if open {
		l.outage = Outage{Open: true, Since: time.Now(), Cause: cause}
		l.era++
		gauge = 1
	}
	l.metrics.Gauge("upstream.breaker", gauge)
	return true
}

// pause gives no permits until retryAfter has passed.
func (l *limiter) pause(retryAfter time.Duration) {
	if retryAfter <= 0 {
		retryAfter = defaultPause
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := time.Now().Add(min(retryAfter, maxPause)); until.After(l.pausedUntil) {
		l.pausedUntil = until
	}
	l.serve()
}
