package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
)

// calmMargin is how much older than before the oldest change may be when all
// counts as being as it was: machines are slow at times.
const calmMargin = time.Second

// aftermath follows what a key did until that is over, to tell of it in figures.
type aftermath struct {
	what   string    // "the kill of the worker"
	at     time.Time // when the key was pressed
	due    time.Time // the earliest that it can be over
	before live

	oldest  time.Duration // the most that any change has waited since
	pending int           // the most that have waited
}

// see takes note of the state, and reports whether all is as it was before.
// delay is the settle delay: what the oldest change waits at least.
func (a *aftermath) see(l live, now time.Time, delay time.Duration) (over bool) {
	a.oldest, a.pending = max(a.oldest, l.oldest), max(a.pending, int(l.lag))
	return now.After(a.due) && l.oldest <= max(a.before.oldest, delay)+calmMargin
}

// tell says what came of it.
func (a *aftermath) tell(l live, now time.Time, over bool) string {
	calls, refused, again, pause, last := 0, 0, 0, time.Duration(0), a.at
	for _, s := range l.served {
		switch {
		case s.call.Start.Before(a.at):
			continue
		case s.call.Status >= http.StatusInternalServerError:
			refused++
		case s.changes == 0:
			again++
		}
		calls++
		if answered(s.call) {
			pause, last = max(pause, s.call.Start.Sub(last)), s.call.Start
		}
	}
	end := fmt.Sprintf("%.0f s after it all was as before", now.Sub(a.at).Seconds())
	if !over {
		end = "it was not over when the changes ended"
	}
	return fmt.Sprintf("What %s did: upstream answered no call for %.1f s, up to %d changes waited, the oldest for up to %.1f s\n"+
		"(%.1f s before), and %s. Calls since: %d; refused: %d; with nothing new: %d.\n"+
		"Stale %d, lost %d.",
		a.what, pause.Seconds(), a.pending, a.oldest.Seconds(), a.before.oldest.Seconds(), end, calls, refused, again, l.stale, l.lost)
}

// tellHot says what became of an account that was hot from a.at to now.
func (a *aftermath) tellHot(l live, changes int, now time.Time) string {
	read := 0
	for _, s := range l.served {
		if s.call.Account == hotAccount && s.call.Start.After(a.at) {
			read++
		}
	}
	return fmt.Sprintf("In %.0f s it changed %d times and was called %d times. The saved share of all accounts was %.1f%% before and is %.1f%% now.",
		now.Sub(a.at).Seconds(), changes, read,
		100*check.SavedRatio(a.before.covered, a.before.calls), 100*check.SavedRatio(l.covered, l.calls))
}
