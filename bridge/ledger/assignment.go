package ledger

import (
	"slices"
	"sort"
	"time"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Assignment is one partition for as long as this process owns it.
type Assignment struct {
	ledger *Ledger
	source contract.Source

	// All below is guarded by ledger.mu.

	// entries are the records at and beyond the watermark, by offset. The first
	// is not done, or there is none.
	entries deque
	// watermark is the next offset to commit, with the leader epoch of the
	// record before it: positions order, so that a log that was truncated and
	// written anew under a higher epoch may take the offset back.
	watermark contract.Position
	last      contract.Position // last seen
	passed    int               // records that fell below the watermark, ever
	inherited []Run             // done by earlier owners, not seen yet
	// partitions is carried from commit to commit, see Metadata.
	partitions int32
	committed  *Commit // nil before the first
	plain      bool    // the broker refuses our metadata
	dropped    bool
	// lowest keeps the time of the oldest undone entry between calls of State.
	oldest oldest
}

type entry struct {
	position contract.Position
	at       int64 // change time, Unix nanoseconds; 0 for what is no change
	done     bool
}

// Verdict says what a record that was seen is.
type Verdict int

// Verdicts.
const (
	// Fresh: tracked from now on, and to be worked on.
	Fresh Verdict = iota
	// Completed: an earlier owner has done it; tracked, and done.
	Completed
	// Repeated: tracked already, or below the watermark. Nothing to do.
	Repeated
	// Gone: the assignment was dropped. Nothing to do.
	Gone
)

// Source returns the partition.
func (a *Assignment) Source() contract.Source { return a.source }

// See tracks a record, in the order it was fetched. A zero time stands for a
// record that is no change (control record, filtered). An offset that was seen
// already and comes again under a higher leader epoch means that the log was
// truncated there: what was tracked from that offset on does not exist any
// more, and the watermark goes back if it was beyond.
func (a *Assignment) See(p contract.Position, at time.Time) Verdict {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped {
		return Gone
	}
	if p.Offset <= a.last.Offset {
		if p.Epoch <= a.last.Epoch {
			return Repeated
		}
		a.truncate(p)
	}
	a.last = p
	e := entry{position: p, done: a.takeInherited(p)}
	if !at.IsZero() {
		e.at = at.UnixNano()
	}
	a.entries.push(e)
	a.ledger.uncommitted++
	if e.done {
		a.advance()
		return Completed
	}
	a.oldest.add(e.at)
	return Fresh
}

// truncate forgets everything at and beyond p.
func (a *Assignment) truncate(p contract.Position) {
	for a.entries.len() > 0 && a.entries.at(a.entries.len()-1).position.Offset >= p.Offset {
		a.entries.pop()
		a.ledger.uncommitted--
	}
	a.oldest.stale = true
	a.inherited = nil
	if p.Offset < a.watermark.Offset {
		a.watermark = p
	}
}

// takeInherited reports whether an earlier owner has done p, and forgets what
// lies before it.
func (a *Assignment) takeInherited(p contract.Position) bool {
	for len(a.inherited) > 0 && a.inherited[0].Last < p.Offset {
		a.inherited = a.inherited[1:]
	}
	return len(a.inherited) > 0 && a.inherited[0].First <= p.Offset && a.inherited[0].Epoch == p.Epoch
}

// Done says that the record at p needs no more work: covered, taken over by a
// parked run, dead-lettered or filtered. It may be called any number of times,
// late, and for an assignment that is gone: then it does nothing.
func (a *Assignment) Done(p contract.Position) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped {
		return
	}
	i, found := sort.Find(a.entries.len(), func(i int) int {
		switch o := a.entries.at(i).position.Offset; {
		case p.Offset < o:
			return -1
		case p.Offset > o:
			return 1
		}
		return 0
	})
	// The epoch must match: p may be a record that a truncation took away.
	if !found || a.entries.at(i).position != p || a.entries.at(i).done {
		return
	}
	e := a.entries.at(i)
	e.done = true
	a.oldest.remove(e.at)
	a.advance()
}

func (a *Assignment) advance() {
	for a.entries.len() > 0 && a.entries.at(0).done {
		p := a.entries.shift().position
		a.watermark = contract.Position{Epoch: p.Epoch, Offset: p.Offset + 1}
		a.passed++
	}
}

// Drop ends the assignment: revoked or lost.
func (a *Assignment) Drop() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped {
		return
	}
	a.dropped = true
	a.ledger.uncommitted -= a.uncommitted()
	a.entries, a.inherited = deque{}, nil
	a.ledger.assignments = slices.DeleteFunc(a.ledger.assignments, func(b *Assignment) bool { return b == a })
}

// Dropped reports whether the assignment has ended. Its changes belong to
// another owner then, and are to be forgotten.
func (a *Assignment) Dropped() bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	return a.dropped
}

func (a *Assignment) uncommitted() int {
	n := a.entries.len() + a.passed
	if a.committed != nil {
		n -= a.committed.passed
	}
	return n
}

// State is what an assignment looks like from outside.
type State struct {
	Watermark   int64     // next offset to commit
	Uncommitted int       // records seen and not committed
	Oldest      time.Time // of the changes that are not done; zero if all are
}

// State returns the present state.
func (a *Assignment) State() State {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	s := State{Watermark: a.watermark.Offset}
	if !a.dropped {
		s.Uncommitted = a.uncommitted()
		s.Oldest = a.oldestUndone()
	}
	return s
}

// Uncommitted returns how many records were seen and are not committed.
func (a *Assignment) Uncommitted() int {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped {
		return 0
	}
	return a.uncommitted()
}
