package upstream

import (
	"slices"
	"time"
)

// Kind is a way in which an answer goes wrong other than by its status.
type Kind string

// Kinds of fault.
const (
	Reset    Kind = "reset"    // the connection is reset before any answer
	Hang     Kind = "hang"     // no answer until the client gives up
	Garbage  Kind = "garbage"  // 200 with a body that is not JSON
	Huge     Kind = "huge"     // 200 with valid JSON of 64 MiB
	Endless  Kind = "endless"  // 200 with a JSON body that never ends
	HTML     Kind = "html"     // 200 with an HTML page, as a login proxy answers
	Redirect Kind = "redirect" // 302 to the same path below /redirected
)

// Fault is what happens to calls instead of a proper answer. The zero value
// does nothing.
type Fault struct {
	// Kind, or Status where it is empty: the answer's status with an empty body.
	Kind   Kind
	Status int
	// RetryAfter is sent as the header of that name, as it is; empty: none.
	RetryAfter string
	// Delay passes before the answer. The version is the one that was readable
	// when the call arrived.
	Delay time.Duration
	// Times is how many calls are affected; 0: all until it is removed.
	Times int
}

// injected is a fault in force.
type injected struct {
	fault Fault
	left  int // calls still to affect; -1: no limit
}

// Inject puts a fault on the account's calls, or on everybody's where account
// is empty. A fault of the account itself comes before one on everybody, and an
// older one before a newer one. Calling remove twice does no harm.
func (s *Simulator) Inject(account string, fault Fault) (remove func()) {
	in := &injected{fault: fault, left: -1}
	if fault.Times > 0 {
		in.left = fault.Times
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[account] = append(s.faults[account], in)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(account, in)
	}
}

func (s *Simulator) drop(account string, in *injected) {
	s.faults[account] = slices.DeleteFunc(s.faults[account], func(f *injected) bool { return f == in })
}

// take returns the fault for a call of the account, nil if there is none, and
// uses it up. The caller holds mu.
func (s *Simulator) take(account string) *Fault {
	for _, scope := range []string{account, ""} {
		if len(s.faults[scope]) == 0 {
			continue
		}
		in := s.faults[scope][0]
		if in.left > 0 {
			if in.left--; in.left == 0 {
				s.drop(scope, in)
			}
		}
		fault := in.fault
		return &fault
	}
	return nil
}
