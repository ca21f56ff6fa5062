package health

import (
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
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

// streak is failures in a row.
type streak struct {
	calls    int
	began    time.Time // when the first was reported, by this process's clock
	since    time.Time // the same in server time
	distinct int       // accounts, counted no further than needed
	account  string
	reason   string // of the latest
	reasons  bool   // there were others
	denied   bool   // all speak of the caller
}

func (s *streak) add(account string, attempt contract.FailedAttempt) {
	denied := attempt.Class == contract.ClassDenied
	if s.calls == 0 {
		s.began, s.since, s.denied = time.Now(), attempt.At, denied
	}
	if s.calls == 0 || (s.distinct == 1 && account != s.account) {
		s.distinct++
	}
	if s.calls > 0 && attempt.Reason != s.reason {
		s.reasons = true
	}
	s.denied = s.denied && denied
	s.calls++
	s.account, s.reason = account, attempt.Reason
}

func (s *streak) cause() string {
	if s.reasons {
		return fmt.Sprintf("%d failures in a row, the latest: %s", s.calls, s.reason)
	}
	return s.reason + " for everybody"
}
