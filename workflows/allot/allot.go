package allot

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	// ProbeEvery is the time between two probes of an open breaker, for the whole
	// fleet. It is a little above 5 s, which leaves room in "18 calls in 90 s" for
	// the calls by which the other workers find out.
	ProbeEvery = 5700 * time.Millisecond

	// renew is how often a worker with nothing new asks. The worker adds jitter
	// of up to a tenth: it asks twice within the time it may use a share.
	renew = 4500 * time.Millisecond
	// overdue is when a silent worker's demand stops counting.
	overdue = renew * 5 / 3
	// confirm is when a worker is asked back that lives with a smaller share: a
	// sliding second later, and a little.
	confirm = 1100 * time.Millisecond
	// growing is the same while the limit is recovering.
	growing = 2 * time.Second
	// leaving is how long the calls of a worker that left still count.
	leaving = 2 * time.Second
	// maxAge is the longest that a worker can have been running.
	maxAge = 10 * 365 * 24 * time.Hour
)

// ErrSuperseded is returned by [Renew] for a request that was overtaken by a
// later one of the same worker.
var ErrSuperseded = errors.New("a later request of this worker was answered already")

// New returns the state of a budget that knows nothing of what was granted
// before now.
func New(now time.Time) *contract.BudgetState {
	return &contract.BudgetState{
		Now: now, OpenAt: now.Add(contract.ShareTTL), Configured: -1,
		Allowed: 1, AllowedAt: now, AllowedBefore: 1,
	}
}

// Renew answers a worker's request.
func Renew(s *contract.BudgetState, now time.Time, r contract.ShareRequest) (contract.Share, error) {
	now = advance(s, now)
	i, known := find(s, r.Worker)
	if known && r.Seq <= s.Workers[i].Seq {
		return contract.Share{}, ErrSuperseded
	}
	if !known || s.Workers[i].Out == nil { // what the probes of one that is alone with its trouble meet says nothing of the rest
		throttle(s, now, r)
	}
	if !known {
		configure(s, now, r)
		s.Workers = slices.Insert(s.Workers, i, contract.BudgetWorker{Worker: r.Worker})
	}
	w := &s.Workers[i]
	if r.Succeeded.After(w.Succeeded) {
		w.Succeeded = r.Succeeded
	}
	turn(s, now, w, r.Breaker)
	refute(s, now)
	w.Seq, w.Demand, w.SeenAt, w.Expires = r.Seq, max(r.Demand, 0), now, now.Add(contract.ShareTTL)
	w.Lease = max(r.Held, 0)
	if r.Leaving {
		w.Demand, w.Granted, w.Expires = 0, 0, now.Add(leaving)
		return answer(s, now, w, contract.Share{}, 0), nil
	}

	limit := Limit(s, now)
	free := free(s, r.Worker, limit)
	target := target(s, now, r.Worker, limit)
	share := contract.Share{Calls: min(target, free)}
	if next := probes(s, w); next != nil && probeDue(s, now, *next, r) {
		share = contract.Share{Calls: 1, Probe: true}
		*next = nextProbe(*next, now)
	}
	w.Granted = share.Calls
	w.Lease = max(w.Lease, w.Granted)
	return answer(s, now, w, share, target), nil
}

// Set makes rps the budget, until a worker starts with another UPSTREAM_RPS than
// the one that is configured now, or Set is called again.
func Set(s *contract.BudgetState, now time.Time, rps int) {
	advance(s, now)
	s.Set = &rps
}

// Budget returns the budget in force, in calls per second.
func Budget(s *contract.BudgetState) int {
	if s.Set != nil {
		return *s.Set
	}
	return max(s.Configured, 0)
}

// Limit returns how many calls per second may be granted now.
func Limit(s *contract.BudgetState, now time.Time) int {
	budget := Budget(s)
	if budget == 0 || now.Before(s.OpenAt) || now.Before(s.PausedUntil) || s.Breaker.Open {
		return 0
	}
	return max(1, int(float64(budget)*s.Allowed)) // one, or nobody would find out that upstream wants more again
}

// Leased returns the sum of what is kept for workers.
func Leased(s *contract.BudgetState) int {
	sum := 0
	for _, w := range s.Workers {
		sum += w.Lease
	}
	return sum
}

// Status describes a state to people, without changing it.
func Status(s *contract.BudgetState, now time.Time) contract.BudgetStatus {
	view := *s
	view.Workers = slices.Clone(s.Workers)
	now = advance(&view, now)
	status := contract.BudgetStatus{
		At: now, Budget: Budget(&view), Set: view.Set != nil, Configured: max(view.Configured, 0),
		Limit: Limit(&view, now), Leased: Leased(&view), Breaker: view.Breaker, Workers: view.Workers,
	}
	if now.Before(view.OpenAt) {
		status.WaitsUntil = view.OpenAt
	}
	if now.Before(view.PausedUntil) {
		status.PausedUntil = view.PausedUntil
	}
	if status.Workers == nil {
		status.Workers = []contract.BudgetWorker{}
	}
	return status
}

// advance moves the state to now, or leaves it where it is if time went back,
// and returns its time.
func advance(s *contract.BudgetState, now time.Time) time.Time {
	if now.After(s.Now) {
		s.Now = now
	}
	s.Workers = slices.DeleteFunc(s.Workers, func(w contract.BudgetWorker) bool { return !w.Expires.After(s.Now) })
	recoverAllowed(s)
	return s.Now
}

func find(s *contract.BudgetState, worker string) (int, bool) {
	return slices.BinarySearchFunc(s.Workers, worker, func(w contract.BudgetWorker, name string) int {
		return strings.Compare(w.Worker, name)
	})
}

// configure takes over the UPSTREAM_RPS of a worker that is new to the budget, if
// it is the one that started last. During a deployment both the old and the new
// value are reported; the older process never has a say again, however often it
// renews, or comes back after a silence. A change ends what an operator has set; a
// restart with the same value does not.
//
// When it started is reckoned back from now: a worker's date may be a day ahead,
// and would keep its value in force for as long, or behind, and have no say.
func configure(s *contract.BudgetState, now time.Time, r contract.ShareRequest) {
	started := now.Add(-time.Duration(r.Age))
	if r.Age <= 0 && r.Started.Before(now) { // an older build
		started = r.Started
	}
	if now.Sub(started) > maxAge {
		started = now // it began before its machine had the date
	}
	if s.Configured >= 0 && !started.After(s.ConfiguredAt) && !s.ConfiguredAt.After(now) {
		return
	}
	if s.Configured >= 0 && r.RPS != s.Configured {
		s.Set = nil
	}
	s.Configured, s.ConfiguredAt = r.RPS, started
}

// free returns what the leases of all others leave of limit.
func free(s *contract.BudgetState, worker string, limit int) int {
	for _, w := range s.Workers {
		if w.Worker != worker {
			limit -= w.Lease
		}
	}
	return max(limit, 0)
}

// target returns what the worker should have, given everybody's demand.
func target(s *contract.BudgetState, now time.Time, worker string, limit int) int {
	wants := make([]want, 0, len(s.Workers))
	for _, w := range s.Workers {
		if now.Sub(w.SeenAt) < overdue {
			demand, holds := w.Demand, w.Lease
			if w.Out != nil { // all that it can use is the probe, once that is due
				demand = 0
				if !now.Before(w.NextProbe) {
					demand, holds = min(w.Demand, 1), limit+1 // before those who hold all of a small limit
				}
			}
			wants = append(wants, want{name: w.Worker, demand: demand, holds: holds})
		}
	}
	fill(limit, wants)
	for _, w := range wants {
		if w.name == worker {
			return w.share
		}
	}
	return 0
}

// answer completes a share with what the worker needs to know besides.
func answer(s *contract.BudgetState, now time.Time, w *contract.BudgetWorker, share contract.Share, target int) contract.Share {
	share.Limit, share.Leased, share.Breaker = Limit(s, now), Leased(s), s.Breaker
	if w.Out != nil && !s.Breaker.Open {
		share.Breaker = *w.Out
		share.Breaker.Epoch = s.Breaker.Epoch
	}
	if now.Before(s.OpenAt) {
		share.WaitsUntil = s.OpenAt
	}
	if now.Before(s.PausedUntil) {
		share.PausedUntil = s.PausedUntil
	}
	// soon is as often as a fleet of this size may ask while something is going
	// on: the server takes ten updates at a time.
	// It is never later than a share has to be renewed.
	soon := min(renew, max(500*time.Millisecond, time.Duration(len(s.Workers))*50*time.Millisecond))
	wait := renew
	until := func(t time.Time) { // not before t, and soon after it
		if left := t.Sub(now); left > 0 {
			wait = min(wait, left+10*time.Millisecond)
		}
	}
	switch {
	case share.Breaker.Open:
		wait = soon
		until(*probes(s, w))
	case share.Calls < target: // others have to shrink first, or their leases to end
		wait = min(renew, 2*soon)
		for _, other := range s.Workers {
			if other.Worker != w.Worker {
				until(other.Expires)
			}
		}
	case w.Lease > w.Granted:
		wait = confirm
	case s.Allowed < 1:
		wait = growing
	}
	until(s.OpenAt)
	until(s.PausedUntil)
	share.Renew = contract.Duration(wait)
	return share
}
