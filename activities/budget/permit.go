package budget

import (
	"time"
)

type permitState int

const (
	held permitState = iota
	started
	sent
	ended // stale or released
)

// permit is one slot of a limiter. Its fields are guarded by the limiter's mu.
type permit struct {
	limiter *limiter
	at      time.Time // granted
	era     int       // the limiter's at that time
	grant   int       // the ID of the grant it came from
	state   permitState
}

// Start implements [Permit].
func (p *permit) Start() error {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if p.state != held || elapsed(p.at, now) > MaxPermitAge || p.era != l.era || l.grant.ended(now) {
		p.release()
		return ErrStale
	}
	p.state = started
	l.metrics.Count("budget.used", 1)
	return nil
}

// Sent implements [Permit].
func (p *permit) Sent() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != started {
		return
	}
	p.state = sent
	l.open--
	l.sent = append(l.sent, time.Now())
	l.serve()
}

// Throttled implements [Permit].
func (p *permit) Throttled(retryAfter time.Duration) {
	p.limiter.pause(retryAfter)
	if p.limiter.throttled != nil {
		p.limiter.throttled(retryAfter)
	}
}

// Release implements [Permit].
func (p *permit) Release() {
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	p.release()
}

// release frees a held slot; the caller holds the limiter's mu.
func (p *permit) release() {
	if p.state != held {
		return
	}
	p.state = ended
	l := p.limiter
	l.open--
	l.next = time.Time{}
	if p.grant == l.grant.id && l.grant.left >= 0 {
		l.grant.left++ // a probe that was not used
	}
	l.serve()
}
