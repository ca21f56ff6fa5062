package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Place is where a change is that is not done.
type Place struct {
	Account    string
	WorkflowID string
	Source     contract.Source
	Position   contract.Position
	Time       time.Time // change time

	// RunID is the run that has taken it; empty while it waits for its signal.
	RunID string
	// Due is when that run makes its call, and Failure what it carries from runs
	// before it; zero and nil where that is not known.
	Due     time.Time
	Failure *contract.Failure
	// Err is why Temporal has not taken it, or not told, or not taken those whose
	// turn came before; empty if there is no reason but time.
	Err string
}

// Oldest returns the oldest change that is under way, and false if there is none
// or a lane did not answer before ctx was done. Here and below, changes of
// assignments that were taken away are another bridge's, also while something is
// kept of them.
func (d *Dispatcher) Oldest(ctx context.Context) (oldest Place, found bool) {
	complete := d.each(ctx, func(l *lane) {
		for _, a := range l.accounts {
			a.each(func(c change, runID string, t *taken) bool {
				if (!found || c.Time.Before(oldest.Time)) && !c.Assignment.Dropped() {
					oldest, found = l.place(a, c, runID, t), true
				}
				return true
			})
		}
	})
	return oldest, found && complete
}

// Find returns where the change at that place is, and false if it is not under
// way. It returns ctx's error if it was not found before a lane had to answer
// that did not before ctx was done.
func (d *Dispatcher) Find(ctx context.Context, source contract.Source, offset int64) (place Place, found bool, err error) {
	complete := d.each(ctx, func(l *lane) {
		for _, a := range l.accounts {
			if found {
				return
			}
			a.each(func(c change, runID string, t *taken) bool {
				if c.Position.Offset == offset && c.Source.Same(source) && !c.Assignment.Dropped() {
					place, found = l.place(a, c, runID, t), true
				}
				return !found
			})
		}
	})
	if !complete && !found {
		return Place{}, false, ctx.Err()
	}
	return place, found, nil
}

// each has every lane call f, one at a time, between its turns, and reports
// whether all did before ctx was done. f is not called after that.
func (d *Dispatcher) each(ctx context.Context, f func(*lane)) bool {
	var mu sync.Mutex
	over := false
	answers := make(chan struct{}, len(d.lanes)) // nobody waits to answer
	for _, l := range d.lanes {
		l.ask(func() {
			mu.Lock()
			defer mu.Unlock()
			if !over {
				f(l)
			}
			answers <- struct{}{}
		})
	}
	for range d.lanes {
		select {
		case <-answers:
		case <-ctx.Done():
			mu.Lock()
			defer mu.Unlock()
			over = true
			return false
		}
	}
	return true
}

func (l *lane) ask(question func()) {
	l.mu.Lock()
	l.questions = append(l.questions, question)
	l.mu.Unlock()
	l.signal()
}

// place is for the lane's own goroutine.
func (l *lane) place(a *account, c change, runID string, t *taken) Place {
	p := Place{
		Account: a.key, WorkflowID: a.workflowID, Source: c.Source, Position: c.Position, Time: c.Time,
		RunID: runID, Err: a.lastError,
	}
	if p.Err == "" && !a.at.IsZero() && time.Now().After(a.at) {
		p.Err = l.lastError // what holds its turn up; nobody else writes it
	}
	if t != nil && t.start != nil {
		p.Due, p.Failure = t.start.Due, t.start.Input.Failure
	}
	return p
}

// each calls f with every change of the account that is not done, and the run
// that has it, if one has, until f returns false.
func (a *account) each(f func(c change, runID string, t *taken) bool) {
	for runID, t := range a.taken {
		for _, c := range t.changes {
			if !f(c, runID, t) {
				return
			}
		}
	}
	if a.batch != nil {
		for _, c := range a.batch.changes {
			if !f(c, "", nil) {
				return
			}
		}
	}
	for _, c := range a.backlog {
		if !f(c, "", nil) {
			return
		}
	}
}
