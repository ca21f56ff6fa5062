package ledger

import (
	"slices"
	"sync"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Ledger holds the assignments that this process has now. Safe for concurrent
// use.
type Ledger struct {
	// mu guards everything in the ledger and in its assignments: whether an
	// assignment was dropped and whether a record is done must be decided
	// together, or a completion could slip in behind a revocation.
	mu          sync.Mutex
	assignments []*Assignment
	uncommitted int
}

// New returns a ledger without assignments.
func New() *Ledger { return &Ledger{} }

// Start says where an assignment begins.
type Start struct {
	Source contract.Source
	// Next is the first offset to be read; its epoch is that of the committed
	// offset, -1 if there is none.
	Next contract.Position
	// Metadata is what the commit at Next said; the zero value if nothing.
	Metadata Metadata
	// Committed says that Next is committed already, with CommittedMetadata.
	Committed         bool
	CommittedMetadata string
}

// Assign begins an assignment.
func (l *Ledger) Assign(s Start) *Assignment {
	a := &Assignment{
		ledger:     l,
		source:     s.Source,
		watermark:  s.Next,
		last:       contract.Position{Epoch: s.Next.Epoch, Offset: s.Next.Offset - 1},
		inherited:  s.Metadata.Runs,
		partitions: s.Metadata.Partitions,
	}
	if s.Committed {
		a.committed = &Commit{Next: s.Next, Metadata: s.CommittedMetadata}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.assignments = append(l.assignments, a)
	return a
}

// Assignments returns the current assignments in the order they were made.
func (l *Ledger) Assignments() []*Assignment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.assignments)
}

// Uncommitted returns how many records were seen and are not committed, in all
// current assignments.
func (l *Ledger) Uncommitted() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uncommitted
}
