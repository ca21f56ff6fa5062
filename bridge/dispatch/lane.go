package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/due"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// minStartDelay is the least that a run which the bridge starts waits, so
	// that a backlog, whose changes are due at once, coalesces too.
	minStartDelay = 2 * time.Second
	// keepIdle is how long after its last signal an account is remembered that has
	// nothing under way: for the pace of its signals, and so that how its parked
	// run began is not read again for each.
	//
	// Then it has a turn, and so the changes of a parked account, which are done
	// once its run has them, hold the watermark no longer than that. In an outage,
	// which a parked run outlasts, it takes a week to 10,000 signals.
	keepIdle = time.Minute

	minRetry = 100 * time.Millisecond
	maxRetry = 10 * time.Second
)

type lane struct {
	d     *Dispatcher
	index int
	wake  chan struct{} // capacity 1: a pending wake-up is enough

	// Of the lane's goroutine alone.
	accounts map[string]*account
	turns    due.Queue[*account]
	// assignments are those of the changes here; droppedAt is when they were
	// last looked through for some that were taken away.
	assignments map[*ledger.Assignment]struct{}
	droppedAt   time.Time

	mu           sync.Mutex
	submitted    []change
	queued       map[string]struct{} // accounts of which a change holds a place in the buffer for the next signal
	ends         []ended
	questions    []func() // to be answered between turns, see query.go
	open         int      // accounts remembered
	busySince    time.Time
	waitingSince time.Time // oldest turn that is overdue
	lastError    string
}

type ended struct {
	account string
	runID   string
	end     run.End
}

func newLane(d *Dispatcher, index int) *lane {
	return &lane{d: d, index: index, wake: make(chan struct{}, 1), accounts: make(map[string]*account), queued: make(map[string]struct{}), assignments: make(map[*ledger.Assignment]struct{})}
}

func (l *lane) submit(c buffer.Change) {
	l.mu.Lock()
	_, joined := l.queued[c.Account]
	l.queued[c.Account] = struct{}{}
	l.submitted = append(l.submitted, change{Change: c, fresh: true, joined: joined})
	l.mu.Unlock()
	if joined {
		l.d.Buffer.Join(c)
	}
	l.signal()
}

func (l *lane) report(account, runID string, end run.End) {
	l.mu.Lock()
	l.ends = append(l.ends, ended{account, runID, end})
	l.mu.Unlock()
	l.signal()
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run goes round until ctx is done: take in what has arrived, then give one
// account its turn. It goes round at least once a second.
func (l *lane) run(ctx context.Context) error {
	for ctx.Err() == nil {
		l.d.Turn(l.index)
		l.takeIn()
		account, wait := l.next()
		if account != nil {
			l.busy(true)
			l.turn(ctx, account)
			l.busy(false)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

func (l *lane) busy(busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busySince = time.Time{}
	if busy {
		l.busySince = time.Now()
	}
	l.open = len(l.accounts)
}

// takeIn applies the ends of runs, then takes in what was submitted.
func (l *lane) takeIn() {
	l.mu.Lock()
	submitted, ends, questions := l.submitted, l.ends, l.questions
	l.submitted, l.ends, l.questions = nil, nil, nil
	l.mu.Unlock()

	now := time.Now()
	for _, e := range ends {
		if a := l.accounts[e.account]; a != nil {
			l.ended(a, e, now)
		}
	}
	touched := make(map[*account]struct{})
	for _, c := range submitted {
		a := l.accounts[c.Account]
		if a == nil {
			a = &account{
				key:        c.Account,
				workflowID: contract.AccountWorkflowID(l.d.Pipeline, c.Account),
				taken:      make(map[string]*taken),
			}
			l.accounts[c.Account] = a
		}
		if len(a.backlog) == 0 { // else it has its turn
			touched[a] = struct{}{}
		}
		a.backlog = append(a.backlog, c)
		l.assignments[c.Assignment] = struct{}{}
	}
	if now.Sub(l.droppedAt) >= time.Second {
		l.droppedAt = now
		l.forgetTaken(now)
	}
	for a := range touched {
		l.wantSignal(a, now)
	}
	for _, answer := range questions {
		answer()
	}
}

// wantSignal gives an account with a backlog its turn. One that Temporal has
// refused has its turn already, backed off, and what comes in meanwhile must not
// bring it forward.
func (l *lane) wantSignal(a *account, now time.Time) {
	if a.retries == 0 {
		l.schedule(a, l.nextSignal(a, now))
	}
}

// nextSignal returns when the account may be signalled next.
func (l *lane) nextSignal(a *account, now time.Time) time.Time {
	at := now.Add(l.d.config.Linger)
	if a.lastSent.IsZero() {
		return at
	}
	if paced := a.lastSent.Add(a.pace(l.d.config.SignalInterval)); paced.After(at) {
		return paced
	}
	return at
}

// schedule gives the account a turn at at, unless it has an earlier one.
func (l *lane) schedule(a *account, at time.Time) {
	if a.at.IsZero() || at.Before(a.at) {
		a.at = at
		l.turns.Push(a, at)
	}
}

// next returns the account whose turn it is, or how long there is nothing to do.
func (l *lane) next() (*account, time.Duration) {
	for {
		a, at, ok := l.turns.Peek()
		if !ok {
			l.overdue(time.Time{})
			return nil, time.Second
		}
		if !at.Equal(a.at) { // it was given an earlier turn, and has had it
			l.turns.Pop()
			continue
		}
		if wait := time.Until(at); wait > 0 {
			l.overdue(time.Time{})
			return nil, min(wait, time.Second)
		}
		l.turns.Pop()
		l.overdue(at)
		a.at = time.Time{}
		return a, 0
	}
}

func (l *lane) overdue(since time.Time) {
	l.mu.Lock()
	l.waitingSince = since
	l.open = len(l.accounts)
	l.mu.Unlock()
}

// turn does the next thing for an account: learn how a run began, signal, or
// forget the account.
func (l *lane) turn(ctx context.Context, a *account) {
	l.forgetDropped(a)
	sending := a.batch != nil || len(a.backlog) > 0
	err := l.learn(ctx, a)
	if err == nil {
		err = l.send(ctx, a)
	}
	if err == nil {
		// A batch that was accepted by a run not known yet is learnt at once.
		err = l.learn(ctx, a)
	}
	now := time.Now()
	if err != nil || sending || a.retries > 0 { // what it failed at may be gone
		l.answered(err)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.retries++
		a.lastError = err.Error()
		wait := min(maxRetry, minRetry<<min(a.retries-1, 10))
		l.schedule(a, now.Add(wait/2+rand.N(wait/2)))
		l.d.complain(a, err)
	default:
		a.retries, a.lastError = 0, ""
		switch {
		case len(a.backlog) > 0:
			l.schedule(a, l.nextSignal(a, now))
		case !a.idle():
		case now.Sub(a.lastSent) >= keepIdle:
			delete(l.accounts, a.key)
		default:
			l.schedule(a, a.lastSent.Add(keepIdle))
		}
	}
}

func (l *lane) answered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastError = ""
	if err != nil {
		l.lastError = err.Error()
	}
}

// forgetTaken forgets what open runs have taken of assignments that were taken
// away. Their ends can be a long time off: during an outage every rebalance would
// add as much again, and the polls of all would go to runs that are another's.
func (l *lane) forgetTaken(now time.Time) {
	dropped := make(map[*ledger.Assignment]bool)
	for assignment := range l.assignments {
		if assignment.Dropped() {
			dropped[assignment] = true
			delete(l.assignments, assignment)
		}
	}
	if len(dropped) == 0 {
		return
	}
	for _, a := range l.accounts {
		a.forgetDropped(dropped)
		if a.idle() {
			l.schedule(a, now.Add(keepIdle))
		}
	}
}

// forgetDropped forgets what belongs to assignments that were taken away: their
// new owner delivers it.
func (l *lane) forgetDropped(a *account) {
	kept := a.backlog[:0]
	for _, c := range a.backlog {
		if c.Assignment.Dropped() {
			l.release(c)
			continue
		}
		kept = append(kept, c)
	}
	clear(a.backlog[len(kept):])
	a.backlog = kept
	if len(kept) == 0 {
		l.unqueue(a)
	}
}

// unqueue says that the account's backlog is empty: what comes next needs a
// place of its own.
func (l *lane) unqueue(a *account) {
	l.mu.Lock()
	delete(l.queued, a.key)
	l.mu.Unlock()
}

func (l *lane) release(c change) {
	switch {
	case c.fresh && c.joined:
		l.d.Buffer.ReleaseJoined(c.Change)
	case c.fresh:
		l.d.Buffer.Release(c.Change)
	}
}

// learn finds out how the runs began that took changes and were not started
// here, and watches them unless they are parked.
func (l *lane) learn(ctx context.Context, a *account) error {
	for runID, t := range a.taken {
		if t.start == nil {
			start, err := l.read(ctx, a, runID)
			if errors.Is(err, run.ErrGone) {
				l.ended(a, ended{a.key, runID, run.End{Broken: "gone"}}, time.Now())
				continue
			}
			if err != nil {
				return err
			}
			t.start = &start
		}
		l.follow(a, runID, t)
	}
	return nil
}

func (l *lane) read(ctx context.Context, a *account, runID string) (run.Start, error) {
	ctx, cancel := context.WithTimeout(ctx, l.d.config.SignalTimeout)
	defer cancel()
	return l.d.Runs.Start(ctx, a.workflowID, runID)
}

// follow settles what a run has taken, given how the run began: a parked run
// owns it from now on; any other is watched for how it ends.
func (l *lane) follow(a *account, runID string, t *taken) {
	if t.start.Input.Parked() {
		for _, c := range t.changes {
			c.Assignment.Done(c.Position)
		}
		t.changes = nil
		return
	}
	if t.forget == nil {
		t.forget = l.d.Watch(watch.Target{
			WorkflowID: a.workflowID, RunID: runID, Due: t.start.Due,
			Report: func(end run.End) { l.report(a.key, runID, end) },
		})
	}
}

// ended takes in how a run ended.
func (l *lane) ended(a *account, e ended, now time.Time) {
	if e.end.Broken != "" {
		l.d.Logger.Warn("run ended without a result; signalling its changes again",
			"account", a.key, "workflow", a.workflowID, "run", e.runID, "end", e.end.Broken)
	}
	done, successor := a.ended(e.runID, e.end)
	for _, c := range done {
		c.Assignment.Done(c.Position)
	}
	if successor != nil {
		l.follow(a, e.end.Next.RunID, successor)
	}
	if len(a.backlog) > 0 {
		l.wantSignal(a, now)
	} else if a.idle() {
		l.schedule(a, now.Add(keepIdle))
	}
}
