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
	open   []item                  // begun and not done, in order
	ahead  []contract.ReplayCursor // done, behind the first that is open
	counts contract.ReplayCounts
	named  []contract.ReplayChange // some of those that are changed
	end    bool                    // the source is exhausted
}

func newTracker(p contract.ReplayProgress) *tracker {
	return &tracker{next: p.Next, ahead: slices.Clone(p.Ahead), counts: p.Counts, named: slices.Clone(p.Changed)}
}

// begin says that the place is under way.
func (t *tracker) begin(i item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, i)
	t.reach(i.at)
}

// full reports whether so many places are done ahead of one that is not that no
// more may begin. Where none is under way one may: it is the one they wait for.
func (t *tracker) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ahead) < contract.MaxReplayAhead || len(t.open) == 0 {
		return false
	}
	t.trim()
	return len(t.ahead) >= contract.MaxReplayAhead
}

// trim drops places that need no entry of their own any more, since all before
// them are done, and returns the first whose account is not.
func (t *tracker) trim() contract.ReplayCursor {
	first := t.next
	if len(t.open) > 0 && t.open[0].at.Before(first) {
		first = t.open[0].at
	}
	t.ahead = slices.DeleteFunc(t.ahead, func(at contract.ReplayCursor) bool { return at.Before(first) })
	return first
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
	t.open = slices.DeleteFunc(t.open, func(i item) bool { return i.at == at })
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
	p := contract.ReplayProgress{Next: t.trim(), Counts: t.counts, Complete: t.end && len(t.open) == 0}
	p.Ahead, p.Changed = slices.Clone(t.ahead), slices.Clone(t.named)
	if len(p.Ahead) >= contract.MaxReplayAhead && len(t.open) > 0 {
		p.WaitsFor = t.open[0].account
	}
	return p
}
