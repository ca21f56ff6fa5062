package consumer

import (
	"sync"
	"time"
)

// seldomInterval is how often one thing that goes on is logged.
const seldomInterval = 10 * time.Second

// seldom keeps what happens again and again from filling the log. The zero value
// is ready.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time // by what is logged, which must be of a few kinds
}

// now reports whether it is time to log this again.
func (s *seldom) now(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[string]time.Time)
	}
	now := time.Now()
	if last, logged := s.last[what]; logged && now.Sub(last) < seldomInterval {
		return false
	}
	s.last[what] = now
	return true
}
