package buffer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func assign(l *ledger.Ledger, partition int32) *ledger.Assignment {
	return l.Assign(ledger.Start{
		Source: contract.Source{Topic: "t", Partition: partition},
		Next:   contract.Position{Epoch: -1},
	})
}

func see(a *ledger.Assignment, offset int64) contract.Position {
	p := contract.Position{Offset: offset}
	a.See(p, time.Unix(1, 0))
	return p
}

func TestRefusedUntilBelow80Percent(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 10, Bytes: 1 << 20, MaxUncommitted: 100}, l)
	a := assign(l, 0)
	g := b.Gate(a)
	for range 10 {
		require.True(t, g.Admit(1, 1))
	}
	require.False(t, g.Admit(1, 1))
	b.ReleaseBytes(1)
	b.ReleaseBytes(1)
	require.False(t, g.Admit(1, 1), "8 of 10 is not below 80%")
	b.ReleaseBytes(1)
	require.True(t, g.Admit(1, 1))
	require.True(t, g.Admit(1, 1), "and then up to the bound again")
	require.True(t, g.Admit(1, 1))
	require.False(t, g.Admit(1, 1))
}

func TestBytesBoundAndTheOversized(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 10, Bytes: 100, MaxUncommitted: 100}, l)
	g := b.Gate(assign(l, 0))
	require.True(t, g.Admit(60, 1))
	require.False(t, g.Admit(500, 1))
	b.ReleaseBytes(60)
	require.True(t, g.Admit(500, 1), "larger than the buffer, but it is empty")
	require.False(t, b.Gate(assign(l, 1)).Admit(1, 2))
}

// A record of more than 80% of the buffer gets in although small ones come and
// go all the time; it alone may exceed the bound.
func TestLargeRecordIsNotStarved(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 100, Bytes: 1000, MaxUncommitted: 1000}, l)
	small, large, second := b.Gate(assign(l, 0)), b.Gate(assign(l, 1)), b.Gate(assign(l, 2))
	for small.Admit(10, 3) {
	}
	require.False(t, large.Admit(900, 3))
	require.False(t, second.Admit(900, 3))
	for range 20 {
		b.ReleaseBytes(10)
	}
	require.False(t, large.Admit(900, 3), "80%")
	b.ReleaseBytes(10)
	require.True(t, large.Admit(900, 3))
	require.False(t, second.Admit(900, 3), "one exceeds the bound, not two")
	_, bytes := b.Held()
	require.EqualValues(t, 790+900, bytes)
}

func TestRecordsWithoutSizeCountAsUncommittedOnly(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 1, Bytes: 100, MaxUncommitted: 3}, l)
	a := assign(l, 0)
	g := b.Gate(a)
	require.True(t, g.Admit(1, 1))
	see(a, 0)
	require.True(t, g.Admit(0, 1), "the buffer is full, but this takes no room")
	see(a, 1)
	require.True(t, g.Admit(0, 1))
	see(a, 2)
	require.False(t, g.Admit(0, 1), "MAX_UNCOMMITTED holds for it too")
	records, bytes := b.Held()
	require.Equal(t, 1, records)
	require.EqualValues(t, 1, bytes)
}

// A partition whose head is stuck fills what it may; the others go on.
func TestOneStuckPartitionLeavesTheLastFifth(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 1000, Bytes: 1 << 20, MaxUncommitted: 100}, l)
	stuck, other := assign(l, 0), assign(l, 1)
	gs, go_ := b.Gate(stuck), b.Gate(other)
	n := int64(0)
	for gs.Admit(1, 2) {
		see(stuck, n)
		n++
	}
	require.EqualValues(t, 80, n)
	for o := range int64(500) { // in and out, while the other is stuck for good
		require.True(t, go_.Admit(1, 2), "offset %d", o)
		other.Done(see(other, o))
		if c, changed := other.Pending(); changed && o%10 == 9 {
			other.Committed(c)
		}
	}
}

// Refused at the full bound, a partition below its share comes back as soon as
// it has given some back itself: below 80% of the whole it may never be.
func TestRefusedPartitionBelowItsShareComesBack(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 1000, Bytes: 1 << 20, MaxUncommitted: 100}, l)
	stuck, other := assign(l, 0), assign(l, 1)
	gs, g := b.Gate(stuck), b.Gate(other)
	for o := int64(0); gs.Admit(1, 2); o++ {
		see(stuck, o)
	}
	for o := range int64(20) {
		require.True(t, g.Admit(1, 2))
		see(other, o)
	}
	require.False(t, g.Admit(1, 2))
	for o := range int64(5) {
		other.Done(contract.Position{Offset: o})
	}
	c, _ := other.Pending()
	other.Committed(c)
	require.False(t, gs.Admit(1, 2), "above its share")
	require.True(t, g.Admit(1, 2))
}

func TestReleaseWakes(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 1, Bytes: 1 << 16, MaxUncommitted: 3}, l)
	c := Change{Account: "a"}
	require.True(t, b.Gate(assign(l, 0)).Admit(c.Size(), 1))
	b.Release(c)
	select {
	case <-b.Woken():
	default:
		t.Fatal("nobody was woken")
	}
	records, bytes := b.Held()
	require.Zero(t, records)
	require.Zero(t, bytes)
}

// A change that joins another's signal keeps its memory and no place.
func TestJoinedTakeNoPlace(t *testing.T) {
	l := ledger.New()
	b := New(Config{Records: 2, Bytes: 1 << 16, MaxUncommitted: 1000}, l)
	g := b.Gate(assign(l, 0))
	c := Change{Account: "a"}
	require.True(t, g.Admit(c.Size(), 1))
	n := 1
	for g.Admit(c.Size(), 1) {
		b.Join(c)
		n++
	}
	records, bytes := b.Held()
	require.Equal(t, 1, records)
	require.Equal(t, int64(n)*c.Size(), bytes)
	require.Greater(t, bytes, int64(1<<16)-c.Size(), "BUFFER_BYTES is what ended it")
	for range n - 1 {
		b.ReleaseJoined(c)
	}
	b.Release(c)
	records, bytes = b.Held()
	require.Zero(t, records)
	require.Zero(t, bytes)
}

// Whatever the bounds: as long as what was admitted is signalled, covered and
// committed, everything gets in, in order, and no bound is passed.
func TestAdmissionNeverDeadlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			Records:        rapid.IntRange(1, 8).Draw(t, "records"),
			Bytes:          100,
			MaxUncommitted: rapid.IntRange(1, 20).Draw(t, "uncommitted"),
		}
		l := ledger.New()
		b := New(cfg, l)
		n := rapid.IntRange(1, 4).Draw(t, "partitions")
		type part struct {
			a    *ledger.Assignment
			g    *Gate
			next int64
		}
		type admitted struct {
			part *part
			p    contract.Position
			size int64
		}
		const each = 30
		var parts []*part
		for i := range n {
			a := assign(l, int32(i))
			parts = append(parts, &part{a: a, g: b.Gate(a)})
		}
		var unsignalled, uncovered []admitted
		for step := 0; ; step++ {
			moved := false
			for _, p := range parts {
				for p.next < each {
					size := rapid.SampledFrom([]int64{0, 1, 30, 250}).Draw(t, "size")
					if !p.g.Admit(size, n) {
						break
					}
					moved = true
					at := admitted{p, see(p.a, p.next), size}
					p.next++
					if size == 0 {
						p.a.Done(at.p)
					} else {
						unsignalled = append(unsignalled, at)
					}
					records, bytes := b.Held()
					require.LessOrEqual(t, records, cfg.Records)
					require.True(t, size == 0 || bytes <= int64(cfg.Bytes) || below80(bytes-size, int64(cfg.Bytes)), "%d bytes, the last of them %d", bytes, size)
					require.LessOrEqual(t, l.Uncommitted(), cfg.MaxUncommitted)
				}
			}
			// In any order, and not all at once: signalled, then covered.
			for len(unsignalled) > 0 && (!moved || rapid.Bool().Draw(t, "signal")) {
				i := rapid.IntRange(0, len(unsignalled)-1).Draw(t, "which")
				b.ReleaseBytes(unsignalled[i].size)
				uncovered = append(uncovered, unsignalled[i])
				unsignalled = append(unsignalled[:i], unsignalled[i+1:]...)
				moved = true
			}
			for len(uncovered) > 0 && (!moved || rapid.Bool().Draw(t, "cover")) {
				i := rapid.IntRange(0, len(uncovered)-1).Draw(t, "which")
				uncovered[i].part.a.Done(uncovered[i].p)
				uncovered = append(uncovered[:i], uncovered[i+1:]...)
				moved = true
			}
			finished := len(unsignalled)+len(uncovered) == 0
			for _, p := range parts {
				if c, changed := p.a.Pending(); changed {
					p.a.Committed(c)
					moved = true
				}
				finished = finished && p.next == each
			}
			if finished {
				return
			}
			require.True(t, moved, "nothing moves any more")
		}
	})
}

func TestValidate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	err := Config{}.Validate()
	for _, name := range []string{"BUFFER_RECORDS", "BUFFER_BYTES", "MAX_UNCOMMITTED"} {
		require.ErrorContains(t, err, name)
	}
}
