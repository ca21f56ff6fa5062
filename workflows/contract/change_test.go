package contract_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

var (
	epoch    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	accounts = contract.Source{TopicID: contract.TopicID{1}, Topic: "accounts", Partition: 3}
	settings = contract.Settings{Settle: contract.Duration(20 * time.Second), Delay: contract.Duration(30 * time.Second)}
)

func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// changes stands for the changes first to last, the first of them at oldest
// seconds and the last at newest.
func changes(first, last int64, oldest, newest float64) contract.Range {
	return contract.Range{
		Source: accounts, First: contract.Position{Offset: first}, Last: contract.Position{Offset: last},
		Count: int(last - first + 1), Oldest: at(oldest), Newest: at(newest),
	}
}

func TestSettled(t *testing.T) {
	require.True(t, contract.Settled(at(0), at(20), 20*time.Second), "exactly S later is enough")
	require.False(t, contract.Settled(at(0), at(20).Add(-1), 20*time.Second))
	require.True(t, contract.Settled(at(0), at(0), 0))
}

func TestRangeIsCoveredByItsNewest(t *testing.T) {
	r := changes(1, 2, 0, 8)
	require.False(t, contract.Covers(r, at(27), 20*time.Second, nil))
	require.True(t, contract.Covers(r, at(28), 20*time.Second, nil))
	require.False(t, contract.Covers(r, time.Time{}, 20*time.Second, nil), "no row, nothing covered")
}

func TestPositionsOrderByLeaderEpoch(t *testing.T) {
	through := []contract.Through{{Source: accounts, Position: contract.Position{Epoch: 1, Offset: 10}}}
	covers := func(epoch int32, offset int64) bool {
		r := changes(offset, offset, 1e6, 1e6)
		r.First.Epoch, r.Last.Epoch = epoch, epoch
		return contract.Covers(r, at(0), 20*time.Second, through)
	}
	require.True(t, covers(1, 10))
	require.True(t, covers(0, 11), "an older epoch, whatever the offset")
	require.False(t, covers(1, 11))
	require.False(t, covers(2, 5), "a truncated log was written anew")
}

func TestRecreatedTopicInheritsNothing(t *testing.T) {
	r := changes(1, 1, 1e6, 1e6)
	r.Source.TopicID = contract.TopicID{2}
	require.False(t, contract.Covers(r, at(0), 20*time.Second,
		[]contract.Through{{Source: accounts, Position: contract.Position{Offset: 10}}}))
}

func TestCoalesce(t *testing.T) {
	// The next call, at 30 s, covers what happened until 10 s; the one after,
	// at 11 + 30 s, what happened until 21 s; and so on.
	ranges := []contract.Range{
		changes(5, 5, 22, 22), changes(1, 1, 0, 0), changes(2, 2, 10, 10), changes(3, 3, 11, 11), changes(4, 4, 21, 21),
	}
	require.Equal(t, []contract.Range{
		changes(1, 2, 0, 10), changes(3, 4, 11, 21), changes(5, 5, 22, 22),
	}, contract.Coalesce(ranges, at(30), settings))
	require.Equal(t, ranges, contract.Coalesce(ranges, time.Time{}, settings), "nothing is known of the next call")
}

func TestCoalesceOfTimesOutOfOrder(t *testing.T) {
	ranges := []contract.Range{changes(1, 1, 0, 0), changes(2, 2, 25, 25), changes(3, 3, 5, 5)}
	require.Equal(t, ranges, contract.Coalesce(ranges, at(30), settings), "2 would hold 3 back")
}

// TestCoalesceLosesNothing: merging keeps counts, times and coverage, and leaves
// few ranges however many changes there were.
func TestCoalesceLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges []contract.Range
		seconds := rapid.Float64Range(0, 100)
		for offset := range int64(rapid.IntRange(1, 200).Draw(t, "n")) {
			s := seconds.Draw(t, "at")
			ranges = append(ranges, changes(offset, offset, s, s))
		}
		slices.SortFunc(ranges, func(a, b contract.Range) int { return a.Oldest.Compare(b.Oldest) })
		for i := range ranges { // in order of time
			ranges[i].First.Offset, ranges[i].Last.Offset = int64(i), int64(i)
		}
		next := at(rapid.Float64Range(0, 130).Draw(t, "next"))
		merged := contract.Coalesce(ranges, next, settings)

		require.Equal(t, contract.Count(ranges), contract.Count(merged))
		require.Equal(t, contract.FirstChange(ranges), contract.FirstChange(merged))
		require.LessOrEqual(t, len(merged), 13, "100 s of traffic, a call at least every 10 s")
		coveredBefore, _ := contract.Split(ranges, next, 20*time.Second, nil)
		coveredAfter, _ := contract.Split(merged, next, 20*time.Second, nil)
		require.Equal(t, contract.Count(coveredBefore), contract.Count(coveredAfter), "the next call covers as much as before")
	})
}

func TestKnown(t *testing.T) {
	known := []contract.Range{changes(1, 3, 0, 0), changes(4, 6, 0, 0)}
	other := changes(2, 2, 0, 0)
	other.Source.Partition++
	for _, test := range []struct {
		name string
		r    contract.Range
		want bool
	}{
		{"the same", changes(1, 3, 9, 9), true},
		{"part of one", changes(2, 2, 9, 9), true},
		{"cut differently", changes(1, 6, 9, 9), false},
		{"sticks out", changes(5, 7, 0, 0), false},
		{"new", changes(9, 9, 0, 0), false},
		{"another partition", other, false},
	} {
		require.Equal(t, test.want, contract.Known(known, test.r), test.name)
	}
}

// TestKnownHoldsNothingNew: whatever signals a run has taken and merged, a range
// with a change that it never saw is not known. Bridges deliver in order, from
// wherever they begin again.
func TestKnownHoldsNothingNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next, seen := int64(0), map[int64]bool{}
		var known []contract.Range
		for range rapid.IntRange(1, 12).Draw(t, "signals") {
			first := rapid.Int64Range(0, next).Draw(t, "first")
			r := changes(first, first+rapid.Int64Range(0, 4).Draw(t, "more"), 0, 0)
			fresh := false
			for o := r.First.Offset; o <= r.Last.Offset; o++ {
				fresh = fresh || !seen[o]
				seen[o] = true
			}
			next = max(next, r.Last.Offset+1)
			if contract.Known(known, r) {
				if fresh {
					t.Fatalf("%v is said to be known", r)
				}
				continue
			}
			known = append(known, r)
			if rapid.Bool().Draw(t, "coalesce") {
				known = contract.Coalesce(known, at(100), settings)
			}
		}
	})
}

func TestAdvance(t *testing.T) {
	through := func(offset int64) []contract.Through {
		return []contract.Through{{Source: accounts, Position: contract.Position{Offset: offset}}}
	}
	covered := []contract.Range{changes(5, 6, 0, 0), changes(8, 8, 0, 0)}
	require.Equal(t, through(8), contract.Advance(nil, covered, nil))
	require.Equal(t, through(6), contract.Advance(nil, covered, []contract.Range{changes(7, 7, 9, 9)}), "7 is pending")
	require.Empty(t, contract.Advance(nil, covered, []contract.Range{changes(4, 4, 9, 9)}))
	require.Equal(t, through(9), contract.Advance(through(9), covered, nil), "never back")
}
