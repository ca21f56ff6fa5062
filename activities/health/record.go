package health

import (
	"fmt"
	"time"
)

// latest remembers the latest event, and the latest of any other account than
// that one's: enough to answer for every account, in constant memory.
type latest struct {
	first, other event
}

type event struct {
	account string
	at      time.Time
}

func (l *latest) add(account string, at time.Time) {
	e := event{account, at}
	switch {
	case account == l.first.account || l.first.at.IsZero():
		if at.After(l.first.at) {
			l.first = e
		}
	case at.After(l.first.at):
		l.first, l.other = e, l.first
	case at.After(l.other.at):
		l.other = e
	}
}

// otherThan reports whether there was an event of another account after since.
// It is false for a zero since.
func (l *latest) otherThan(account string, since time.Time) bool {
	if since.IsZero() {
		return false
	}
	e := l.first
	if e.account == account {
		e = l.other
	}
	return e.at.After(since)
}

// streak counts failures in a row.
type streak struct {
	calls    int
	distinct int // accounts, counted no further than needed
	account  string
	reason   string // of the latest
	mixed    bool   // there were others
}

func (s *streak) add(account, reason string) {
	if s.calls == 0 || (s.distinct == 1 && account != s.account) {
		s.distinct++
	}
	if s.calls > 0 && reason != s.reason {
		s.mixed = true
	}
	s.calls++
	s.account, s.reason = account, reason
}

func (s *streak) cause() string {
	if s.mixed {
		return fmt.Sprintf("%d failures in a row, the latest: %s", s.calls, s.reason)
	}
	return s.reason + " for everybody"
}
