package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// model is the ledger as one would write it without thinking of speed: every
// record of the log as it is now, by offset.
type model struct {
	start   int64
	records []modelRecord
	// from is where the committed prefix may begin: the start, or the offset of
	// a truncation below it.
	from      int64
	completed map[contract.Position]bool // by earlier owners
}

type modelRecord struct {
	position contract.Position
	at       time.Time
	done     bool
}

func (m *model) watermark() int64 {
	w := m.from
	for _, r := range m.records {
		if !r.done {
			break
		}
		w = max(w, r.position.Offset+1)
	}
	return w
}

func (m *model) oldest() time.Time {
	var oldest time.Time
	for _, r := range m.records {
		if !r.done && (oldest.IsZero() || r.at.Before(oldest)) {
			oldest = r.at
		}
	}
	return oldest
}

func (m *model) done() map[contract.Position]bool {
	done := make(map[contract.Position]bool)
	for _, r := range m.records {
		if r.done && r.position.Offset >= m.watermark() {
			done[r.position] = true
		}
	}
	return done
}

func (m *model) see(p contract.Position, at time.Time) {
	for i, r := range m.records {
		if r.position.Offset >= p.Offset {
			if p.Offset < m.watermark() {
				m.from = p.Offset // nothing before it is left undone
			}
			m.records = m.records[:i]
			m.completed = nil
			break
		}
	}
	m.records = append(m.records, modelRecord{p, at, m.completed[p]})
}

func TestLedgerAgainstModel(t *testing.T) {
	source := contract.Source{TopicID: contract.TopicID{1}, Topic: "t", Partition: 3}
	rapid.Check(t, func(t *rapid.T) {
		l := New()
		m := &model{start: 100, from: 100}
		a := l.Assign(Start{Source: source, Next: contract.Position{Epoch: 1, Offset: 100}})
		var old []*Assignment
		epoch, next := int32(1), int64(100)
		var all []contract.Position
		t.Repeat(map[string]func(*rapid.T){
			"see": func(t *rapid.T) {
				p := contract.Position{Epoch: epoch, Offset: next + rapid.Int64Range(0, 3).Draw(t, "gap")}
				at := time.Unix(rapid.Int64Range(1, 50).Draw(t, "at"), 0).UTC()
				want := Fresh
				if m.completed[p] {
					want = Completed
				}
				require.Equal(t, want, a.See(p, at))
				m.see(p, at)
				next, all = p.Offset+1, append(all, p)
			},
			"again": func(t *rapid.T) {
				if len(m.records) == 0 {
					t.Skip("nothing seen")
				}
				r := rapid.SampledFrom(m.records).Draw(t, "record")
				require.Equal(t, Repeated, a.See(r.position, r.at))
			},
			"truncate": func(t *rapid.T) {
				if len(m.records) == 0 {
					t.Skip("nothing seen")
				}
				epoch++
				p := contract.Position{Epoch: epoch, Offset: rapid.SampledFrom(m.records).Draw(t, "at").position.Offset}
				require.Equal(t, Fresh, a.See(p, time.Unix(7, 0)))
				m.see(p, time.Unix(7, 0).UTC())
				next, all = p.Offset+1, append(all, p)
			},
			// A new leader whose log is as long: nothing is seen again.
			"election": func(t *rapid.T) { epoch++ },
			"done": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("nothing seen")
				}
				p := rapid.SampledFrom(all).Draw(t, "position") // also such that are truncated away
				a.Done(p)
				for _, o := range old {
					o.Done(p)
				}
				for i := range m.records {
					if m.records[i].position == p {
						m.records[i].done = true
					}
				}
			},
			"commit": func(t *rapid.T) {
				if c, changed := a.Pending(); changed {
					a.Committed(c)
				}
				_, again := a.Pending()
				require.False(t, again)
				undone := 0
				for _, r := range m.records {
					if r.position.Offset >= m.watermark() {
						undone++
					}
				}
				require.Equal(t, undone, l.Uncommitted())
			},
			// Revoked, and assigned again with what was committed last.
			"reassign": func(t *rapid.T) {
				c, changed := a.Pending()
				if !changed {
					t.Skip("nothing to commit")
				}
				a.Drop()
				require.Zero(t, l.Uncommitted())
				md, err := Decode(c.Metadata)
				require.NoError(t, err)
				completed := m.done()
				for p := range m.completed { // not seen again yet
					if len(m.records) == 0 || p.Offset > m.records[len(m.records)-1].position.Offset {
						completed[p] = true
					}
				}
				old = append(old, a)
				a = l.Assign(Start{Source: source, Next: c.Next, Metadata: md, Committed: true, CommittedMetadata: c.Metadata})
				m.from, m.records, m.completed = c.Next.Offset, nil, completed
				next = c.Next.Offset
				// The same log is read again from there.
				for _, p := range dedupe(all, c.Next.Offset) {
					want := Fresh
					if m.completed[p] {
						want = Completed
					}
					require.Equal(t, want, a.See(p, time.Unix(9, 0)), "%v", p)
					m.see(p, time.Unix(9, 0).UTC())
					next = p.Offset + 1
				}
			},
			"": func(t *rapid.T) {
				s := a.State()
				require.Equal(t, m.watermark(), s.Watermark)
				require.Equal(t, m.oldest(), s.Oldest)
				c, _ := a.Pending()
				if c.Metadata != "" {
					md, err := Decode(c.Metadata)
					require.NoError(t, err)
					require.Equal(t, m.watermark(), md.Watermark)
					for p := range m.done() {
						require.True(t, covers(md.Runs, p), "%v is done, but not in %v", p, md.Runs)
					}
					for _, r := range m.records {
						if !r.done {
							require.False(t, covers(md.Runs, r.position), "%v is not done, but in %v", r.position, md.Runs)
						}
					}
				}
			},
		})
	})
}

// dedupe returns the log as it stands: of each offset the highest epoch, and
// nothing that a later truncation took away.
func dedupe(all []contract.Position, from int64) []contract.Position {
	var log []contract.Position
	for _, p := range all {
		for len(log) > 0 && log[len(log)-1].Offset >= p.Offset {
			log = log[:len(log)-1]
		}
		log = append(log, p)
	}
	var rest []contract.Position
	for _, p := range log {
		if p.Offset >= from {
			rest = append(rest, p)
		}
	}
	return rest
}

func covers(runs []Run, p contract.Position) bool {
	for _, r := range runs {
		if r.First <= p.Offset && p.Offset <= r.Last && r.Epoch == p.Epoch {
			return true
		}
	}
	return false
}
