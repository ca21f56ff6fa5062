package upstream

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Config of a simulator.
type Config struct {
	// MaxLag is the longest time until a change is readable; the lag is uniform
	// in [0, MaxLag]. Zero makes changes readable at once.
	MaxLag time.Duration
	// Seed makes the sequence of lags repeatable.
	Seed uint64
}

// Change is one change that the simulator made.
type Change struct {
	Account string
	// Version counts the account's changes from 1; see [Simulator.Truth] for
	// what a deletion counts as.
	Version int64
	// At is when the change was made, ReadableAt when a call can first see it.
	At, ReadableAt time.Time
}

// Call is one request that arrived.
type Call struct {
	Account string
	// Start is when the request arrived, by the kernel where [Serve] serves it.
	Start time.Time
	// Version is what the answer carried; 0 where it carried none.
	Version int64
	// Status is what was answered; 0 where no status line was.
	Status int
}

// state is one version of an account.
type state struct {
	version    int64
	readableAt time.Time
	deleted    bool
}

// Simulator is the upstream. It is an http.Handler, safe for concurrent use.
type Simulator struct {
	cfg Config
	now func() time.Time

	mu       sync.Mutex
	random   *rand.Rand
	accounts map[string][]state // newest last; those nobody can read any more are dropped
	calls    []Call
	faults   map[string][]*injected // by account; "" is all
}

// New returns a simulator that knows no account yet.
func New(cfg Config) *Simulator {
	return &Simulator{
		cfg:      cfg,
		now:      time.Now,
		random:   rand.New(rand.NewPCG(cfg.Seed, 0x5eed)),
		accounts: map[string][]state{},
		faults:   map[string][]*injected{},
	}
}

// Change makes a change of the account, creating the account if need be.
func (s *Simulator) Change(account string) Change { return s.change(account, false) }

// Delete makes the change that removes the account: once it is readable, calls
// are answered with 404. A later Change creates the account again.
func (s *Simulator) Delete(account string) Change { return s.change(account, true) }

func (s *Simulator) change(account string, deleted bool) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now()
	readable := at
	if s.cfg.MaxLag > 0 {
		readable = at.Add(time.Duration(s.random.Int64N(int64(s.cfg.MaxLag) + 1)))
	}
	states := s.accounts[account]
	next := state{version: 1, readableAt: readable, deleted: deleted}
	if n := len(states); n > 0 {
		previous := states[n-1]
		next.version = previous.version + 1
		// In order: a change is never readable before the one it follows. That
		// one became readable within MaxLag of an earlier time, so this stays
		// within MaxLag of its own.
		if next.readableAt.Before(previous.readableAt) {
			next.readableAt = previous.readableAt
		}
		if i := readableIndex(states, at); i > 0 {
			states = slices.Delete(states, 0, i)
		}
	}
	s.accounts[account] = append(states, next)
	return Change{Account: account, Version: next.version, At: at, ReadableAt: next.readableAt}
}

// readableIndex returns the index of the newest state readable at t, or -1.
func readableIndex(states []state, t time.Time) int {
	for i, st := range slices.Backward(states) {
		if !st.readableAt.After(t) {
			return i
		}
	}
	return -1
}

// Truth returns the newest version of every account, readable or not. 0 stands
// for an account that was deleted.
func (s *Simulator) Truth() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	truth := make(map[string]int64, len(s.accounts))
	for account, states := range s.accounts {
		if newest := states[len(states)-1]; !newest.deleted {
			truth[account] = newest.version
		} else {
			truth[account] = 0
		}
	}
	return truth
}

// Calls returns every call so far in the order of arrival.
func (s *Simulator) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// CallsOf returns the calls for one account in the order of arrival.
func (s *Simulator) CallsOf(account string) []Call {
	calls := s.Calls()
	return slices.DeleteFunc(calls, func(c Call) bool { return c.Account != account })
}

// begin records the arrival of a call and returns what it can read: the newest
// readable version, 0 if there is none, and the fault that applies.
func (s *Simulator) begin(account string, r *http.Request) (call int, version int64, fault *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	states := s.accounts[account]
	if i := readableIndex(states, now); i >= 0 && !states[i].deleted {
		version = states[i].version
	}
	start, noted := Arrived(r)
	if !noted {
		start = now
	}
	s.calls = append(s.calls, Call{Account: account, Start: start})
	return len(s.calls) - 1, version, s.take(account)
}

// answered completes the record of a call.
func (s *Simulator) answered(call int, status int, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call].Status, s.calls[call].Version = status, version
}
