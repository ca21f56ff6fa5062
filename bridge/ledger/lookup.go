package ledger

import "sort"

// Fate is what an assignment knows of one offset.
type Fate int

// Fates.
const (
	// Unseen: beyond what was fetched and admitted.
	Unseen Fate = iota
	// Undone: seen, and not done.
	Undone
	// Beyond: done, while something before it is not.
	Beyond
	// Passed: below the watermark, and not committed yet.
	Passed
	// Kept: committed.
	Kept
	// NoRecord: records before and after it were seen, and none at it:
	// compaction has removed it, or it belongs to a transaction.
	NoRecord
)

// Lookup returns what became of the offset.
func (a *Assignment) Lookup(offset int64) Fate {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	switch {
	case a.committed != nil && offset < a.committed.Next.Offset:
		return Kept
	case offset < a.watermark.Offset:
		return Passed
	case offset > a.last.Offset:
		return Unseen
	}
	i := sort.Search(a.entries.len(), func(i int) bool { return a.entries.at(i).position.Offset >= offset })
	switch {
	case i == a.entries.len() || a.entries.at(i).position.Offset != offset:
		return NoRecord
	case a.entries.at(i).done:
		return Beyond
	}
	return Undone
}

// CommittedOffset returns the offset that the group has committed, -1 if that is
// not known.
func (a *Assignment) CommittedOffset() int64 {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.committed == nil {
		return -1
	}
	return a.committed.Next.Offset
}
