package ledger

import (
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Commit is what an assignment would have committed now.
type Commit struct {
	Next     contract.Position // next offset to read; epoch of the record before it
	Metadata string            // at most MaxMetadataBytes
	passed   int
}

// Pending returns what is to be committed, and false if the last commit said
// the same already or the assignment was dropped.
func (a *Assignment) Pending() (Commit, bool) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped {
		return Commit{}, false
	}
	c := Commit{Next: a.watermark, passed: a.passed}
	if !a.plain {
		c.Metadata = Metadata{
			TopicID: a.source.TopicID, Watermark: a.watermark.Offset,
			Partitions: a.partitions, Runs: a.runs(),
		}.Encode()
	}
	if a.committed != nil && a.committed.Next == c.Next && a.committed.Metadata == c.Metadata {
		return Commit{}, false
	}
	return c, true
}

// runs lists what is done beyond the watermark.
func (a *Assignment) runs() []Run {
	var runs []Run
	open := false
	for i := range a.entries.len() {
		e := a.entries.at(i)
		switch {
		case !e.done:
			open = false
		case open && runs[len(runs)-1].Epoch == e.position.Epoch:
			runs[len(runs)-1].Last = e.position.Offset
		default:
			if len(runs) == maxRuns {
				return runs
			}
			runs = append(runs, Run{First: e.position.Offset, Last: e.position.Offset, Epoch: e.position.Epoch})
			open = true
		}
	}
	// What earlier owners did and we have not met yet must not be forgotten by
	// our first commit.
	for _, r := range a.inherited {
		r.First = max(r.First, a.last.Offset+1)
		if r.First <= r.Last && len(runs) < maxRuns {
			runs = append(runs, r)
		}
	}
	return runs
}

// Committed says that the broker accepted c. A commit that is older than one
// accepted before changes nothing.
func (a *Assignment) Committed(c Commit) {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	if a.dropped || a.committed != nil && a.committed.passed > c.passed {
		return
	}
	before := a.uncommitted()
	a.committed = &c
	a.ledger.uncommitted += a.uncommitted() - before
}

// RefuseMetadata makes later commits go without metadata: the broker refuses
// it. The commit itself must get through.
func (a *Assignment) RefuseMetadata() {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	a.plain = true
}
