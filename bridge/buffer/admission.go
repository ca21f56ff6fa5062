package buffer

import "github.com/quiesce-io/quiesce/bridge/ledger"

// Gate is the admission of one assignment. Used by one goroutine.
type Gate struct {
	buffer     *Buffer
	assignment *ledger.Assignment
	refusedBy  bound
}

type bound int

const (
	none bound = iota
	byBuffer
	byUncommitted
)

// Gate returns the admission for a.
func (b *Buffer) Gate(a *ledger.Assignment) *Gate { return &Gate{buffer: b, assignment: a} }

// Admit takes room for the next record of the assignment, and reports whether
// there was any. size is the memory that it will hold until it is released; 0
// for a record that is done as soon as it is seen, which takes no room in the
// buffer but a place among the uncommitted. assigned is how many assignments
// share the bounds, at least 1. The caller tracks an admitted record in the
// ledger before it asks again.
func (g *Gate) Admit(size int64, assigned int) bool {
	// A record that is larger than the whole buffer gets in when it is empty.
	b := g.buffer
	uncommitted, own := b.ledger.Uncommitted(), g.assignment.Uncommitted()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.mayHold(size, g.refusedBy == byBuffer):
		g.refusedBy = byBuffer
		return false
	case !b.mayTrack(uncommitted, own, assigned, g.refusedBy == byUncommitted):
		g.refusedBy = byUncommitted
		return false
	}
	g.refusedBy = none
	if size > 0 {
		b.records++
		b.bytes += size
	}
	return true
}

func (b *Buffer) mayHold(size int64, refused bool) bool {
	switch {
	case size == 0 || b.records == 0:
		return true
	case refused:
		// Without its own size: a large record would wait for ever behind small
		// ones that come and go. So the bound is exceeded by less than one record.
		return b.roomy()
	}
	return b.records < b.cfg.Records && b.bytes+size <= int64(b.cfg.Bytes)
}

// roomy reports whether those who were refused are let in. The caller holds mu.
func (b *Buffer) roomy() bool {
	return below80(int64(b.records), int64(b.cfg.Records)) && below80(b.bytes, int64(b.cfg.Bytes))
}

// mayTrack keeps the last fifth for assignments that have less than their fair
// share of MAX_UNCOMMITTED. Otherwise one partition whose head is stuck would
// fill the bound and stop all others.
func (b *Buffer) mayTrack(uncommitted, own, assigned int, refused bool) bool {
	limit := int64(b.cfg.MaxUncommitted)
	share := max(limit/int64(assigned), 1)
	roomy := below80(int64(uncommitted), limit)
	switch {
	case int64(uncommitted) >= limit:
		return false
	case refused:
		return roomy || below80(int64(own), share)
	}
	return roomy || int64(own) < share
}

func below80(n, limit int64) bool { return n*5 < limit*4 }
