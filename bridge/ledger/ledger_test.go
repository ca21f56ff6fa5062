package ledger

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

var (
	orders = contract.Source{TopicID: contract.TopicID{0xa, 0xb}, Topic: "orders", Partition: 2}
	at     = time.Unix(1_800_000_000, 0).UTC()
)

func pos(epoch int32, offset int64) contract.Position {
	return contract.Position{Epoch: epoch, Offset: offset}
}

func TestGapsAreNormalAndUnseenOffsetsAreNotCommitted(t *testing.T) {
	a := New().Assign(Start{Source: orders, Next: pos(-1, 10)})
	for _, o := range []int64{12, 15, 40} { // 10, 11, 13… were compacted away
		require.Equal(t, Fresh, a.See(pos(0, o), at))
	}
	a.Done(pos(0, 15))
	require.EqualValues(t, 10, a.State().Watermark)
	a.Done(pos(0, 12))
	require.EqualValues(t, 16, a.State().Watermark, "not 40: nobody knows whether 16 exists")
	a.Done(pos(0, 40))
	require.EqualValues(t, 41, a.State().Watermark)
}

// The partition leaves and comes back while a change of the first assignment is
// under way (A-B-A): its completion must not touch the second.
func TestLateDoneOfOlderAssignmentIsIgnored(t *testing.T) {
	l := New()
	first := l.Assign(Start{Source: orders, Next: pos(-1, 0)})
	first.See(pos(0, 0), at)
	first.Drop()
	second := l.Assign(Start{Source: orders, Next: pos(-1, 0)})
	second.See(pos(0, 0), at)

	first.Done(pos(0, 0))
	first.Drop() // again: must not take the second with it

	require.True(t, first.Dropped())
	require.False(t, second.Dropped())
	require.Zero(t, second.State().Watermark)
	require.Equal(t, []*Assignment{second}, l.Assignments())
	require.Equal(t, 1, l.Uncommitted())
	_, pending := first.Pending()
	require.False(t, pending)
}

func TestTruncationTakesTheWatermarkBack(t *testing.T) {
	a := New().Assign(Start{Source: orders, Next: pos(4, 100)})
	for o := int64(100); o < 105; o++ {
		a.See(pos(4, o), at)
		a.Done(pos(4, o))
	}
	c, _ := a.Pending()
	a.Committed(c)
	require.Equal(t, pos(4, 105), c.Next)

	require.Equal(t, Fresh, a.See(pos(5, 102), at), "the log was cut at 102 and goes on under epoch 5")
	a.Done(pos(4, 102))
	c, changed := a.Pending()
	require.True(t, changed)
	require.Equal(t, pos(5, 102), c.Next, "or a restart would skip the new 102")
	a.Done(pos(5, 102))
	c, _ = a.Pending()
	require.Equal(t, pos(5, 103), c.Next)
}

func TestMetadataOfOldEpochsCompletesNothing(t *testing.T) {
	md := Metadata{TopicID: orders.TopicID, Watermark: 10, Runs: []Run{{First: 12, Last: 14, Epoch: 3}}}
	a := New().Assign(Start{Source: orders, Next: pos(3, 10), Metadata: md, Committed: true})
	require.Equal(t, Fresh, a.See(pos(3, 10), at))
	require.Equal(t, Completed, a.See(pos(3, 12), at))
	require.Equal(t, Fresh, a.See(pos(4, 13), at), "13 was written anew")
}

// The next owner's first commit comes before it has met everything that an
// earlier owner completed; what it has not met must stay in the metadata.
func TestInheritedRunsSurviveTheFirstCommit(t *testing.T) {
	md := Metadata{TopicID: orders.TopicID, Watermark: 10, Partitions: 6, Runs: []Run{{First: 12, Last: 14, Epoch: 3}, {First: 20, Last: 29, Epoch: 3}}}
	a := New().Assign(Start{Source: orders, Next: pos(3, 10), Metadata: md, Committed: true, CommittedMetadata: md.Encode()})
	_, changed := a.Pending()
	require.False(t, changed, "what stands there already is not committed again")
	a.See(pos(3, 10), at)
	a.See(pos(3, 12), at)
	a.Done(pos(3, 10))
	c, changed := a.Pending()
	require.True(t, changed)
	got, err := Decode(c.Metadata)
	require.NoError(t, err)
	require.Equal(t, Metadata{
		TopicID: orders.TopicID, Watermark: 13, Partitions: 6,
		Runs: []Run{{First: 13, Last: 14, Epoch: 3}, {First: 20, Last: 29, Epoch: 3}},
	}, got)
}

// What is done is known by offset and leader epoch, so one run is of one epoch.
func TestRunsEndWhereTheLeaderEpochChanges(t *testing.T) {
	a := New().Assign(Start{Source: orders, Next: pos(3, 10)})
	for _, p := range []contract.Position{pos(3, 10), pos(3, 11), pos(3, 12), pos(4, 13), pos(4, 14)} {
		a.See(p, at)
		if p.Offset > 10 {
			a.Done(p)
		}
	}
	c, _ := a.Pending()
	got, err := Decode(c.Metadata)
	require.NoError(t, err)
	require.Equal(t, []Run{{First: 11, Last: 12, Epoch: 3}, {First: 13, Last: 14, Epoch: 4}}, got.Runs)
}

func TestRefusedMetadataIsLeftOut(t *testing.T) {
	a := New().Assign(Start{Source: orders, Next: pos(-1, 0)})
	a.RefuseMetadata()
	c, _ := a.Pending()
	require.Empty(t, c.Metadata)
}

func TestMetadataGolden(t *testing.T) {
	md := Metadata{
		TopicID: orders.TopicID, Watermark: 1841, Partitions: 12,
		Runs: []Run{{1843, 1843, 7}, {1850, 2049, 7}, {2050, 2050, 8}, {9_000_000_000, 9_000_000_005, 8}},
	}
	text := md.Encode()
	// Written by every version that is out there: a change needs a new prefix.
	require.Equal(t, "quiesce1:CgsAAAAAAAAAAAAAAAAAALEODAUQAAzHAQECAPrHiIdDBQ", text)
	got, err := Decode(text)
	require.NoError(t, err)
	require.Equal(t, md, got)
}

func TestMetadataKeepsTheNearestWithinTheLimit(t *testing.T) {
	md := Metadata{TopicID: orders.TopicID, Watermark: 5}
	for i := range int64(5000) {
		md.Runs = append(md.Runs, Run{First: 7 + 300*i, Last: 7 + 300*i + i%200, Epoch: int32(i % 3)})
	}
	text := md.Encode()
	require.LessOrEqual(t, len(text), MaxMetadataBytes)
	require.Greater(t, len(text), MaxMetadataBytes-20, "room is used")
	got, err := Decode(text)
	require.NoError(t, err)
	require.Equal(t, md.Runs[:len(got.Runs)], got.Runs)
	require.Greater(t, len(got.Runs), 500)
}

func TestForeignMetadataIsRefused(t *testing.T) {
	ours := Metadata{TopicID: orders.TopicID, Watermark: 5, Runs: []Run{{7, 9, 0}}}.Encode()
	for _, text := range []string{
		"", "member-1", "quiesce2:AAAA", "quiesce1:", "quiesce1:!!", ours[:len(ours)-3],
		strings.Repeat("x", 9000), "quiesce1:" + strings.Repeat("A", 5000),
	} {
		_, err := Decode(text)
		require.ErrorIs(t, err, ErrForeign, "%.40q", text)
	}
}

// Numbers that add up to more than an offset can be.
func TestRunsBeyondAllOffsetsAreRefused(t *testing.T) {
	const most = math.MaxInt64
	for name, numbers := range map[string][]uint64{
		"gap":            {5, 0, (most - 4) << 1, 0},
		"length":         {5, 0, 0, most - 5},
		"gap and length": {5, 0, (most >> 1) << 1, most>>1 + 1},
		"epoch":          {5, 0, 1, 2 * (math.MaxInt32 + 2), 0},
		"second epoch":   {5, 0, 1, 2 * math.MaxInt32, 0, 1, 2 * 2, 0},
	} {
		raw := orders.TopicID[:]
		for _, n := range numbers {
			raw = binary.AppendUvarint(raw, n)
		}
		_, err := Decode(metadataPrefix + base64.RawURLEncoding.EncodeToString(raw))
		require.ErrorIs(t, err, ErrForeign, name)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Metadata{TopicID: orders.TopicID, Watermark: 5, Runs: []Run{{7, 9, 0}, {11, 1 << 40, 3}}}.Encode())
	f.Add("quiesce1:CgsAAAAAAAAAAAAAAAAAALEODA")
	f.Fuzz(func(t *testing.T, text string) {
		md, err := Decode(text)
		if err != nil {
			return
		}
		next := md.Watermark
		for _, r := range md.Runs {
			require.GreaterOrEqual(t, r.First, next)
			require.GreaterOrEqual(t, r.Last, r.First)
			next = r.Last + 1
		}
		again, err := Decode(md.Encode())
		require.NoError(t, err)
		require.Equal(t, md, again)
	})
}

// Dropped and Done race in production; the race detector and the counts watch.
func TestDropAgainstDone(t *testing.T) {
	l := New()
	a := l.Assign(Start{Source: orders, Next: pos(-1, 0)})
	for o := range int64(2000) {
		a.See(pos(0, o), at)
	}
	var wg sync.WaitGroup
	for w := range int64(4) {
		wg.Go(func() {
			for o := w; o < 2000; o += 4 {
				a.Done(pos(0, o))
				if c, changed := a.Pending(); changed && o%50 == 0 {
					a.Committed(c)
				}
			}
		})
	}
	wg.Go(a.Drop)
	wg.Wait()
	require.Zero(t, l.Uncommitted())
	require.Empty(t, l.Assignments())
}
