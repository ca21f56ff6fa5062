package budget

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// askTimeout is how long an answer may take. It fits twice between a regular
	// renewal and the end of the share.
	askTimeout = 2500 * time.Millisecond
	// askAgain is the wait after a request that failed, up to twice that.
	askAgain = 250 * time.Millisecond
	// askSpacing is the least time between requests, however much news there is;
	// demandSpacing is the same where the news is more demand, and
	// throttledSpacing between reports of throttled answers.
	askSpacing       = 20 * time.Millisecond
	demandSpacing    = time.Second
	throttledSpacing = time.Second
	// suspicion is how long a suspect worker waits for the budget's view. It is
	// bounded, because a worker that cannot reach Temporal may use its share.
	suspicion = time.Second
)

// Granter is the way to the budget workflow.
type Granter interface {
	// Renew delivers a request and returns the answer. An error means that
	// nothing is known: the request may have been handled, or may be yet.
	Renew(ctx context.Context, request contract.ShareRequest) (contract.Share, error)
}

// Fleet is a [Budget] that is one worker's share of what the whole fleet may
// call. Nothing is permitted before [Fleet.Run] has got a share, nor after the
// share has ended. The zero value is not usable; take [NewFleet].
//
// Who keeps the promise is package allot; it rests on three duties of a Fleet,
// which are all there is to review here:
//
//   - A share is used for [contract.ShareUse] at most, counted from before it was
//     asked for, and replaced by nothing but the answer to a later request. Run
//     has one request under way at a time, and gives up on it for good.
//   - A request says what is held, which only an answer can raise.
//   - The limiter never exceeds the share that is in force.
type Fleet struct {
	limiter *limiter
	granter Granter
	rps     int
	worker  string
	started time.Time
	metrics telemetry.Metrics
	log     *slog.Logger
	wake    chan struct{} // capacity 1: askAt has moved

	// ending calls ended when the share ends; only Run's goroutine uses it.
	ending *time.Timer

	// turning makes what is decided about the limiter and done to it one step.
	// Without it an answer that granted a share could be applied after a
	// Suspend that came while it was being looked at.
	turning sync.Mutex

	// mu is never held while the limiter is called, nor while waiting for
	// turning: the limiter's hooks take it.
	mu          sync.Mutex
	seq         int64
	askAt       time.Time // when to ask next
	asked       time.Time // when the latest request was made
	reported    int       // its demand
	failures    int       // requests in a row without an answer
	throttled   int       // answers to report
	throttledAt time.Time // when such were last reported
	quietUntil  time.Time // what Retry-After said
	event       *contract.BreakerEvent
	succeeded   time.Time // when the latest successful call began, in Temporal's time
	epoch       int64     // of the breaker, as last answered
	probing     bool      // a probe was granted in this outage
	suspectedAt time.Time // the latest suspicion
	latest      contract.Share
	granted     grant     // what it allows
	latestAsked time.Time // when the request was made that it answers; the start before the first
}

// NewFleet returns a Fleet without a share.
func NewFleet(cfg Config, granter Granter, metrics telemetry.Metrics, log *slog.Logger) *Fleet {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	f := &Fleet{
		limiter: &limiter{metrics: metrics},
		granter: granter, rps: cfg.UpstreamRPS,
		worker:  fmt.Sprintf("%d@%.48s-%08x", os.Getpid(), host, rand.Uint32()),
		started: time.Now(), metrics: metrics, log: log, wake: make(chan struct{}, 1),
	}
	f.latestAsked = f.started
	f.limiter.waiting = f.wanting
	f.limiter.throttled = f.report
	metrics.Gauge("upstream.breaker", 0)
	return f
}

// Acquire implements [Budget].
func (f *Fleet) Acquire(ctx context.Context) (Permit, error) { return f.limiter.Acquire(ctx) }

// Outage implements [Budget].
func (f *Fleet) Outage() Outage { return f.limiter.Outage() }

// Share returns the latest answer, its zero value before the first. Once the share
// has ended it grants no calls; if that is for want of an answer, Unanswered is set.
func (f *Fleet) Share() contract.Share {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, now := f.latest, time.Now()
	if f.granted.ended(now) {
		s.Calls, s.Probe = 0, false
	}
	if elapsed(f.latestAsked, now) >= contract.ShareUse {
		s.Unanswered = f.latestAsked
	}
	return s
}

// Run asks for shares until ctx is done; then it gives its share back. Let ctx
// end when no call is under way any more.
func (f *Fleet) Run(ctx context.Context) error {
	for {
		f.mu.Lock()
		wait := time.Until(f.askAt)
		f.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			f.leave(ctx)
			return nil
		case <-f.wake:
			timer.Stop()
		case <-timer.C:
			f.ask(ctx)
		}
	}
}

// ask makes one request and takes in its answer.
func (f *Fleet) ask(ctx context.Context) {
	asked := time.Now()
	r := f.request(asked)
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	share, err := f.granter.Renew(limited, r)
	if err != nil {
		f.unanswered(ctx, r, err)
		return
	}
	f.answered(asked, r, share)
}

func (f *Fleet) request(asked time.Time) contract.ShareRequest {
	u := f.limiter.usage()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	f.asked, f.reported = asked, u.demand
	f.askAt = asked.Add(contract.ShareTTL) // until there is an answer, or news
	r := contract.ShareRequest{
		Worker: f.worker, Started: f.started, Age: contract.Duration(elapsed(f.started, asked)), Seq: f.seq, RPS: f.rps, Held: u.held, Demand: u.demand,
		Throttled: f.throttled, Breaker: f.event, Succeeded: f.succeeded,
	}
	if f.throttled > 0 {
		f.throttledAt = asked
	}
	if left := f.quietUntil.Sub(asked); left > 0 {
		r.RetryAfter = contract.Duration(left)
	}
	f.throttled = 0
	return r
}

func (f *Fleet) unanswered(ctx context.Context, r contract.ShareRequest, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures++
	f.throttled += r.Throttled
	f.askAt = time.Now().Add(askAgain + rand.N(askAgain))
	if ctx.Err() == nil && (f.failures == 1 || f.failures%20 == 0) {
		f.log.Warn("no answer from the budget; calls stop when the share ends",
			"share", f.latest.Calls, "ends_in", max(0, time.Until(f.granted.until)).Round(time.Millisecond), "failures", f.failures, "error", err)
	}
}

func (f *Fleet) answered(asked time.Time, r contract.ShareRequest, s contract.Share) {
	f.turning.Lock()
	defer f.turning.Unlock()
	f.mu.Lock()
	if f.failures > 0 {
		f.log.Info("the budget answers again", "failures", f.failures, "share", s.Calls)
	}
	if f.latest.WaitsUntil.IsZero() && !s.WaitsUntil.IsZero() {
		f.log.Info("the budget has just started: shares of the one before it may still be in use, so it grants none yet",
			"until", s.WaitsUntil)
	}
	f.failures = 0
	f.epoch = s.Breaker.Epoch
	if f.event == r.Breaker {
		f.event = nil // answered; one that was added since is not
	}
	f.probing = s.Breaker.Open && (f.probing || s.Probe)
	use := grant{limit: s.Calls, until: asked.Add(contract.ShareUse), left: -1}
	if s.Probe {
		use.until, use.left = asked.Add(contract.ProbeUse), 1
	}
	open, cause := s.Breaker.Open, s.Breaker.Cause
	if f.event != nil && f.event.Open && !open {
		// Found out while the request was under way: what was granted for a
		// healthy upstream is not used.
		use.limit, open, cause = 0, true, f.event.Cause
	}
	trusted := !f.suspectedAt.After(asked)
	f.latest, f.granted, f.latestAsked = s, use, asked
	renew := time.Duration(s.Renew)
	next := time.Now().Add(renew + rand.N(min(renew/10, 500*time.Millisecond)+1))
	if next.Before(f.askAt) { // it is sooner if there was news since the request
		f.askAt = next
	}
	f.mu.Unlock()

	since := f.limiter.Outage().Since
	if f.limiter.share(use, open, cause) {
		if open {
			f.log.Error("upstream is out: no calls but probes", "cause", cause)
		} else {
			f.log.Info("upstream is back", "out_for", time.Since(since).Round(time.Millisecond))
		}
	}
	if trusted {
		f.limiter.hold(time.Time{})
	}
	f.metrics.Gauge("budget.limit", float64(s.Limit))
	f.metrics.Gauge("budget.leased", float64(s.Calls)) // this worker's part; s.Leased is the fleet's sum
	if f.ending != nil {
		f.ending.Stop()
	}
	f.ending = time.AfterFunc(time.Until(use.until), f.ended)
}

// ended has the metric say that the share has ended, unless there is another by now.
func (f *Fleet) ended() {
	f.turning.Lock()
	defer f.turning.Unlock()
	if f.Share().Calls == 0 {
		f.metrics.Gauge("budget.leased", 0)
	}
}

// leave gives the share back.
func (f *Fleet) leave(ctx context.Context) {
	if f.ending != nil {
		f.ending.Stop()
	}
	f.limiter.share(grant{}, f.Outage().Open, f.Outage().Cause)
	r := f.request(time.Now())
	r.Leaving = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := f.granter.Renew(ctx, r); err != nil {
		f.log.Debug("the share is not given back; it ends by itself", "error", err)
	}
}

// hasten moves the next request to t, if that is sooner. The caller holds mu.
func (f *Fleet) hasten(t time.Time) {
	if least := f.asked.Add(askSpacing); t.Before(least) {
		t = least
	}
	if !t.Before(f.askAt) {
		return
	}
	f.askAt = t
	select {
	case f.wake <- struct{}{}:
	default: // is awake already
	}
}

// wanting is told that somebody has to wait. A worker that was idle asks at
// once, one that needs more than it said a little later.
func (f *Fleet) wanting(demand int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.latest.Breaker.Open || demand <= f.reported:
	case f.reported == 0:
		f.hasten(time.Now())
	default:
		f.hasten(f.asked.Add(demandSpacing))
	}
}

// report is told of an answer that asked for fewer calls.
func (f *Fleet) report(retryAfter time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.throttled++
	now := time.Now()
	if until := now.Add(min(retryAfter, maxPause)); until.After(f.quietUntil) {
		f.quietUntil = until
	}
	f.hasten(f.throttledAt.Add(throttledSpacing))
}

// Suspect implements [Budget]: no permit is given until the budget has answered,
// which takes one round trip. In an outage all workers meet failures at about
// the same time; so once one of them has proof, each of the others makes one
// more failing call at most.
func (f *Fleet) Suspect() {
	if f.Outage().Open {
		return
	}
	f.turning.Lock()
	defer f.turning.Unlock()
	now := time.Now()
	f.limiter.hold(now.Add(suspicion))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.suspectedAt = now
	f.hasten(now)
}

// Suspend implements [Budget].
func (f *Fleet) Suspend(cause string, since time.Time) {
	if f.Outage().Open {
		return // the fleet knows, and says so with the first cause
	}
	f.turning.Lock()
	defer f.turning.Unlock()
	f.limiter.share(grant{left: -1}, true, cause)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.event = &contract.BreakerEvent{Open: true, Cause: cause, Since: since, Epoch: f.epoch}
	f.probing = false
	f.hasten(time.Now())
}

// Resume implements [Budget]. A success proves that upstream is back only if a
// probe was out: others were on their way before it broke down.
func (f *Fleet) Resume(began time.Time) {
	open := f.Outage().Open
	f.mu.Lock()
	defer f.mu.Unlock()
	if began.After(f.succeeded) {
		f.succeeded = began
	}
	if open && f.probing && f.event == nil {
		f.event = &contract.BreakerEvent{Epoch: f.epoch}
		f.hasten(time.Now())
	}
}
