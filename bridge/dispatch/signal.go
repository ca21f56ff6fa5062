package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// send signals the account's batch, forming one if there is something to signal.
//
// The plain signal comes first, at every try: it does not wake a run that waits
// in its start delay, signal-with-start does. Only when no run is open is one
// started. Between the two another bridge may start one; then signal-with-start
// wakes that run early, which costs a hand-back of its activity and nothing else.
func (l *lane) send(ctx context.Context, a *account) error {
	if a.batch == nil {
		if len(a.backlog) == 0 {
			return nil
		}
		a.form(time.Now(), l.d.Settings, rand.Text())
		l.unqueue(a)
	}
	runID, start, err := l.deliver(ctx, a, a.batch)
	var refusedStart startError
	switch {
	case err == nil:
		l.accept(a, runID, start)
		return nil
	case run.Invalid(err) && ctx.Err() == nil && l.othersPass(errors.As(err, &refusedStart)):
		l.refuse(a, err)
		return nil
	default:
		return err
	}
}

// trust is for how long a signal that passed proves that it is not everybody's
// that are refused.
const trust = time.Minute

// othersPass reports whether another account's request of that kind has passed
// lately. A plain signal proves nothing of a start, which a wrong task queue, say,
// has refused to all: no account's fault. A start carries a signal as well.
func (l *lane) othersPass(start bool) bool {
	passed := &l.d.accepted
	if start {
		passed = &l.d.started
	}
	return time.Since(time.Unix(0, passed.Load())) < trust
}

// startError is an error of a signal-with-start.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// deliver returns the run that took the batch, and how it began if it was
// started for it.
func (l *lane) deliver(ctx context.Context, a *account, b *batch) (runID string, start *run.Start, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.d.config.SignalTimeout)
	defer cancel()
	began := time.Now()
	runID, err = l.d.Runs.Signal(ctx, a.workflowID, b.requestID, b.signal)
	if err == nil {
		l.count("signal", began)
		return runID, nil, nil
	}
	if !errors.Is(err, run.ErrNotRunning) {
		l.count("error", began)
		return "", nil, err
	}
	began = time.Now()
	delay := max(minStartDelay, b.due.Sub(began))
	runID, started, err := l.d.Runs.SignalWithStart(ctx, a.workflowID, a.key, b.requestID, b.signal, delay)
	if err != nil {
		l.count("error", began)
		return "", nil, startError{err}
	}
	l.d.started.Store(time.Now().UnixNano())
	if !started {
		l.count("signal", began)
		return runID, nil, nil
	}
	l.count("start", began)
	return runID, &run.Start{
		RunID: runID, Due: began.Add(delay),
		Input: contract.AccountSyncInput{Account: a.key, Settings: b.signal.Settings},
	}, nil
}

func (l *lane) count(kind string, began time.Time) {
	l.d.Metrics.Count("bridge.signals", 1, "kind:"+kind)
	l.d.Metrics.Timing("bridge.signal_latency", time.Since(began), "kind:"+kind)
}

// accept records that a run has the batch: from here on it is durable.
func (l *lane) accept(a *account, runID string, start *run.Start) {
	for i := range a.batch.changes {
		l.release(a.batch.changes[i])
		a.batch.changes[i].fresh = false
		l.assignments[a.batch.changes[i].Assignment] = struct{}{} // it may have been taken away meanwhile
	}
	now := time.Now()
	l.d.accepted.Store(now.UnixNano())
	t := a.accepted(runID, now)
	if t.start == nil {
		t.start = start
	}
	if t.forget == nil && t.start == nil {
		return // learn reads how it began
	}
	l.follow(a, runID, t)
}

// refuse deals with a batch that Temporal calls invalid. A batch of several
// changes is halved, for one of them, or their number, may be the reason; a
// single one is a dead letter.
func (l *lane) refuse(a *account, err error) {
	changes := a.batch.changes
	a.batch = nil
	if half := len(changes) / 2; half > 0 {
		a.backlog = append(changes[half:], a.backlog...)
		rest := a.backlog
		a.backlog = changes[:half:half]
		a.form(time.Now(), l.d.Settings, rand.Text())
		a.backlog = rest
		l.schedule(a, time.Now())
		return
	}
	l.d.Logger.Error("Temporal refuses a change; it becomes a dead letter", "account", a.key,
		"record", changes[0].Source.String(), "offset", changes[0].Position.Offset, "error", err)
	l.release(changes[0])
	l.d.Refuse(changes[0].Change, "refused by Temporal: "+err.Error())
}
