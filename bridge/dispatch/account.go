package dispatch

import (
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// account is what a lane knows of one account. Only the lane's goroutine
// touches it.
type account struct {
	key        string
	workflowID string

	// backlog is to be signalled, in the order in which it came; batch is being
	// signalled.
	backlog []change
	batch   *batch
	// taken are the changes that open runs have accepted, by run ID.
	taken map[string]*taken

	at       time.Time // next turn, zero for none
	lastSent time.Time // last accepted signal
	lastRun  string    // the run that accepted it
	retries  int       // unanswered requests in a row

	lastError string // of the latest of them
}

type change struct {
	buffer.Change
	fresh  bool // still holds room in the buffer
	joined bool // but no place, see [buffer.Buffer.Join]
}

// batch is the content of one signal.
type batch struct {
	requestID string
	changes   []change
	signal    contract.Changes
	due       time.Time // first change + D
}

// taken is what one run has accepted.
type taken struct {
	start   *run.Start // nil until it is known how the run began
	forget  func()     // ends the watch; nil while it is not watched
	since   time.Time  // when it first accepted a signal from here; zero if it has not
	changes []change
}

// forgetDropped forgets what runs have taken of assignments that were taken away,
// and the runs that have nothing else: their new owner follows them.
func (a *account) forgetDropped(dropped map[*ledger.Assignment]bool) {
	for runID, t := range a.taken {
		before := len(t.changes)
		t.changes = slices.DeleteFunc(t.changes, func(c change) bool { return dropped[c.Assignment] })
		if before > 0 && len(t.changes) == 0 {
			delete(a.taken, runID)
			if t.forget != nil {
				t.forget()
			}
		}
	}
}

// idle reports whether nothing of the account is under way.
func (a *account) idle() bool {
	for _, t := range a.taken {
		if len(t.changes) > 0 {
			return false
		}
	}
	return len(a.backlog) == 0 && a.batch == nil
}

// pace returns the least time between the last signal and the next: 2% of how long
// the run that took the last one had been open by then, so that a run which waits
// for days has some hundreds of signals, far from the 10,000 at which Temporal
// refuses more.
//
// It must not be reckoned from change times: a backlog of old changes would have
// its accounts wait for hours with no run open at all.
func (a *account) pace(least time.Duration) time.Duration {
	t := a.taken[a.lastRun]
	if t == nil || t.start == nil {
		return least // no run is open that has something from here
	}
	since := t.since
	if t.start.Due.Before(since) { // adopted, and overdue by then
		since = t.start.Due
	}
	return max(least, a.lastSent.Sub(since)/50)
}

// nextCall predicts when the run that will take the backlog makes its call. How
// the runs began that have taken something is known whenever a batch is formed.
func (a *account) nextCall(now time.Time, settings contract.Settings) time.Time {
	var due time.Time
	for _, t := range a.taken {
		if t.start.Due.After(due) {
			due = t.start.Due
		}
	}
	if due.After(now) {
		return due
	}
	// No run is open, or its call is being made: what had not settled for that
	// one gets the next.
	var first time.Time
	see := func(changes []change) {
		for _, c := range changes {
			settled := !due.IsZero() && contract.Settled(c.Time, due, time.Duration(settings.Settle))
			if !settled && (first.IsZero() || c.Time.Before(first)) {
				first = c.Time
			}
		}
	}
	see(a.backlog)
	for _, t := range a.taken {
		see(t.changes)
	}
	next := first.Add(time.Duration(settings.Delay))
	if next.Before(now) {
		return now
	}
	return next
}

// form makes the next batch of what is in the backlog.
func (a *account) form(now time.Time, settings contract.Settings, requestID string) {
	changes := a.backlog
	a.backlog = nil
	ranges := make([]contract.Range, len(changes))
	for i, c := range changes {
		ranges[i] = contract.Range{
			Source: c.Source, First: c.Position, Last: c.Position,
			Count: 1, Oldest: c.Time, Newest: c.Time, Version: c.Version,
		}
	}
	due := contract.FirstChange(ranges).Add(time.Duration(settings.Delay))
	a.batch = &batch{
		requestID: requestID,
		changes:   changes,
		signal:    contract.Changes{Ranges: contract.Coalesce(ranges, a.nextCall(now, settings), settings), Settings: settings},
		due:       due,
	}
}

// accepted moves the batch to the run that took it. That is the open run now, so
// a parked one before it is over: what is kept of it for the pace and the
// prediction must not outlive it.
func (a *account) accepted(runID string, now time.Time) *taken {
	for id, t := range a.taken {
		if id != runID && t.start != nil && t.start.Input.Parked() {
			delete(a.taken, id)
		}
	}
	t := a.taken[runID]
	if t == nil {
		t = &taken{}
		a.taken[runID] = t
	}
	if t.since.IsZero() {
		t.since = now
	}
	t.changes = append(t.changes, a.batch.changes...)
	a.batch, a.lastSent, a.lastRun = nil, now, runID
	return t
}

// ended takes a run's end in: what it covered is done, what it left pending
// belongs to its successor, and the rest is to be signalled again. It returns
// the changes that are done and the successor, if that is to be watched.
func (a *account) ended(runID string, end run.End) (done []change, successor *taken) {
	t := a.taken[runID]
	if t == nil {
		return nil, nil
	}
	delete(a.taken, runID)
	var again, left []change
	for _, c := range t.changes {
		switch {
		case lists(end.Covered, c):
			done = append(done, c)
		case end.Next != nil && lists(end.Next.Input.Pending, c):
			left = append(left, c)
		default:
			again = append(again, c)
		}
	}
	a.backlog = append(again, a.backlog...)
	if end.Next == nil {
		return done, nil
	}
	if end.Next.Input.Parked() {
		// The parked run and its successors own them now.
		done, left = append(done, left...), nil
	}
	successor = a.taken[end.Next.RunID]
	if successor == nil {
		if len(left) == 0 {
			return done, nil
		}
		successor = &taken{}
		a.taken[end.Next.RunID] = successor
	}
	successor.start = end.Next
	successor.changes = append(successor.changes, left...)
	return done, successor
}

func lists(ranges []contract.Range, c change) bool {
	return slices.ContainsFunc(ranges, func(r contract.Range) bool { return r.Contains(c.Source, c.Position) })
}
