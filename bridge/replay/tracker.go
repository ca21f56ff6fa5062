package replay

import (
	"slices"
	"sync"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// kind is what became of one account.
type kind int

const (
	unchanged kind = iota
	changed
	fresh    // had been read since the replay began
	setAside // parked
	invalid  // a record without an account
)

// result is what became of one account, and of its payload where that is changed.
type result struct {
	kind   kind
	change contract.PayloadChange
}

// tracker knows which places are done. Places begin in order and end in any.
type tracker struct {
	mu     sync.Mutex
	next   contract.ReplayCursor   // where the source is
	open   []contract.ReplayCursor // begun and not done, in order
	ahead  []contract.ReplayCursor // done, behind the first that is open
	counts contract.ReplayCounts
	named  []contract.ReplayChange // some of those that are changed
	end    bool                    // the source is exhausted
}

func newTracker(p contract.ReplayProgress) *tracker {
	return &tracker{next: p.Next, ahead: slices.Clone(p.Ahead), counts: p.Counts, named: slices.Clone(p.Changed)}
}

// begin says that the place is under way.
func (t *tracker) begin(at contract.ReplayCursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, at)
	t.reach(at)
}

// pass says that the source has passed the place, which needs nothing.
func (t *tracker) pass(at contract.ReplayCursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reach(at)
}

func (t *tracker) reach(at contract.ReplayCursor) {
	at.Offset++
	if t.next.Before(at) {
		t.next = at
	}
}

// done says what became of a place that was begun, and of its account.
func (t *tracker) done(at contract.ReplayCursor, account string, r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.open, at); i >= 0 {
		t.open = slices.Delete(t.open, i, i+1)
	}
	t.ahead = append(t.ahead, at)
	switch r.kind {
	case unchanged:
		t.counts.Synced++
		t.counts.Unchanged++
	case changed:
		t.counts.Synced++
		t.counts.Changed++
		if len(t.named) < contract.MaxChangesNamed {
			t.named = append(t.named, contract.ReplayChange{Account: account, PayloadChange: r.change})
		}
	case fresh:
		t.counts.Fresh++
	case setAside:
		t.counts.Parked++
	case invalid:
		t.counts.Invalid++
	}
}

// exhausted says that the source has no more.
func (t *tracker) exhausted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = true
}

// progress returns how far the replay has come. What was begun and given up
// still stands in its way, so that the next slice begins there.
func (t *tracker) progress() contract.ReplayProgress {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := contract.ReplayProgress{Next: t.next, Counts: t.counts, Complete: t.end && len(t.open) == 0}
	for _, at := range t.open {
		if at.Before(p.Next) {
			p.Next = at
		}
	}
	// Places that Next has passed need no entry of their own any more.
	t.ahead = slices.DeleteFunc(t.ahead, func(at contract.ReplayCursor) bool { return at.Before(p.Next) })
	p.Ahead, p.Changed = slices.Clone(t.ahead), slices.Clone(t.named)
	return p
}
