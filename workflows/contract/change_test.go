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

// calls is Coalesce without its merging, as it is defined: which of the coming
// calls covers each range.
func calls(ranges []contract.Range, next time.Time) []int {
	const settle, delay = 20 * time.Second, 30 * time.Second
	call, left := make([]int, len(ranges)), len(ranges)
	for n := 1; left > 0; n++ {
		before, due, soonest := left, at(1e6), at(1e6)
		for i, r := range ranges {
			switch {
			case call[i] > 0:
			case r.Settled(next, settle):
				call[i] = n
				left--
			default:
				due = earlier(due, r.Oldest.Add(delay))
				soonest = earlier(soonest, r.Newest.Add(settle))
			}
		}
		next = due
		if left == before && soonest.After(due) {
			next = soonest
		}
	}
	return call
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// TestCoalesceMergesWhatOneCallCovers, neighbours of one source and nothing else,
// however ranges lie and however wide they are.
func TestCoalesceMergesWhatOneCallCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := make([]contract.Range, rapid.IntRange(2, 30).Draw(t, "n"))
		for i := range ranges {
			oldest := rapid.Float64Range(0, 120).Draw(t, "oldest")
			ranges[i] = changes(int64(i), int64(i), oldest, oldest+rapid.SampledFrom([]float64{0, 0, 5, 25}).Draw(t, "wide"))
			ranges[i].Source.Partition = rapid.Int32Range(0, 1).Draw(t, "partition")
		}
		next := at(rapid.Float64Range(0, 150).Draw(t, "next"))
		call := calls(ranges, next)
		want := map[contract.Position]contract.Position{} // first to last, of what is to be merged
		for partition := range int32(2) {
			first, last := -1, -1
			for i, r := range ranges {
				if r.Source.Partition != partition {
					continue
				}
				if first < 0 || call[i] != call[last] {
					first = i
				}
				last = i
				want[ranges[first].First] = r.Last
			}
		}
		got := map[contract.Position]contract.Position{}
		for _, r := range contract.Coalesce(slices.Clone(ranges), next, settings) {
			got[r.First] = r.Last
		}
		require.Equal(t, want, got)
	})
}

// A range that is wider than D - S has settled only after it was due.
func TestWhatIsWiderThanACallWaitsUntilItHasSettled(t *testing.T) {
	wide, next, after := changes(1, 2, 0, 40), changes(3, 3, 45, 45), changes(4, 4, 61, 61)
	require.Equal(t, []contract.Range{wide, changes(3, 3, 45, 45), after}, contract.Coalesce([]contract.Range{wide, next, after}, at(30), settings),
		"calls at 60, 75 and 91")
	next = changes(3, 3, 40, 40)
	require.Equal(t, []contract.Range{changes(1, 3, 0, 40), after}, contract.Coalesce([]contract.Range{wide, next, after}, at(30), settings))
}

func TestMergedRangesCountRedeliveriesOnce(t *testing.T) {
	merged := func(a, b contract.Range) contract.Range {
		both := contract.Coalesce([]contract.Range{a, b}, at(100), settings)
		require.Len(t, both, 1)
		return both[0]
	}
	require.Equal(t, 5, merged(changes(1, 3, 0, 0), changes(4, 5, 0, 0)).Count)
	require.Equal(t, 4, merged(changes(1, 3, 0, 0), changes(3, 6, 0, 0)).Count, "at least: 3 is one of both")
	require.Equal(t, 3, merged(changes(1, 3, 0, 0), changes(2, 3, 0, 0)).Count)
	require.Equal(t, changes(1, 3, 0, 7), merged(changes(1, 3, 4, 7), changes(2, 3, 0, 5)))
}

// TestCompact: what lies between covered ranges and is pending stays apart.
func TestCompact(t *testing.T) {
	covered := []contract.Range{changes(1, 1, 0, 0), changes(7, 9, 4, 5), changes(3, 3, 2, 2), changes(12, 12, 1, 1)}
	require.Equal(t, []contract.Range{sparseAt(1, 3, 2, 0, 2), sparseAt(7, 12, 4, 1, 5)}, contract.Compact(covered, []contract.Range{changes(5, 5, 30, 30)}))
	require.Empty(t, contract.Compact(nil, []contract.Range{changes(5, 5, 30, 30)}))
	other := changes(13, 13, 0, 0)
	other.Source.Partition++
	require.Equal(t, []contract.Range{changes(12, 12, 1, 1), other}, contract.Compact([]contract.Range{other, covered[3]}, nil))
}

func sparseAt(first, last int64, count int, oldest, newest float64) contract.Range {
	r := changes(first, last, oldest, newest)
	r.Count = count
	return r
}

// TestManyChangesTakeNoTime: a run may take in 10,000 signals at once, each with
// several ranges, and the SDK gives a workflow task one second. What is quadratic
// takes minutes here; the limit leaves room for a slow machine.
func TestManyChangesTakeNoTime(t *testing.T) {
	for _, apart := range []float64{0.001, 11} {
		began := time.Now()
		known, pending := contract.NewKnown(nil), []contract.Range{}
		for i := range int64(50_000) {
			r := changes(i, i, apart*float64(i), apart*float64(i))
			if known.Add(r) {
				pending = append(pending, r)
			}
		}
		merged := contract.Coalesce(pending, at(30), settings)
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, 50_000, contract.Count(merged))
	}
}

func TestKnown(t *testing.T) {
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
		known := contract.NewKnown([]contract.Range{changes(1, 3, 0, 0), changes(4, 6, 0, 0)})
		require.Equal(t, test.want, !known.Add(test.r), test.name)
		require.False(t, known.Add(test.r), "%s: known by now", test.name)
	}
}

// TestKnownIsWhatLiesWithinOne of the ranges before it, whatever their order.
func TestKnownIsWhatLiesWithinOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []contract.Range
		known := contract.NewKnown(nil)
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			first := rapid.Int64Range(0, 40).Draw(t, "first")
			r := changes(first, first+rapid.Int64Range(0, 8).Draw(t, "more"), 0, 0)
			r.Source.Partition = rapid.Int32Range(0, 1).Draw(t, "partition")
			within := slices.ContainsFunc(all, func(k contract.Range) bool {
				return k.Contains(r.Source, r.First) && k.Contains(r.Source, r.Last)
			})
			if known.Add(r) == within {
				t.Fatalf("%v within %v: %v", r, all, within)
			}
			all = append(all, r)
		}
	})
}

// TestKnownHoldsNothingNew: whatever signals a run has taken and merged, a range
// with a change that it never saw is not known. Bridges deliver in order, from
// wherever they begin again.
func TestKnownHoldsNothingNew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next, seen := int64(0), map[int64]bool{}
		var pending []contract.Range
		for range rapid.IntRange(1, 12).Draw(t, "signals") {
			first := rapid.Int64Range(0, next).Draw(t, "first")
			r := changes(first, first+rapid.Int64Range(0, 4).Draw(t, "more"), 0, 0)
			fresh := false
			for o := r.First.Offset; o <= r.Last.Offset; o++ {
				fresh = fresh || !seen[o]
				seen[o] = true
			}
			next = max(next, r.Last.Offset+1)
			if !contract.NewKnown(pending).Add(r) {
				if fresh {
					t.Fatalf("%v is said to be known", r)
				}
				continue
			}
			pending = append(pending, r)
			if rapid.Bool().Draw(t, "coalesce") {
				pending = contract.Coalesce(pending, at(100), settings)
			}
		}
	})
}

// TestBrokersWithoutTopicIDs: topics are told apart by name, and no position is
// believed, for the topic may have been created anew.
func TestBrokersWithoutTopicIDs(t *testing.T) {
	orders, billing := changes(1, 1000, 0, 0), changes(7, 7, 1e6, 1e6)
	orders.Source, billing.Source = contract.Source{Topic: "orders"}, contract.Source{Topic: "billing"}
	require.True(t, contract.NewKnown([]contract.Range{orders}).Add(billing), "no redelivery")
	require.Len(t, contract.Coalesce([]contract.Range{orders, billing}, at(1e7), settings), 2)

	anew := changes(7, 7, 1e6, 1e6)
	anew.Source = orders.Source
	require.False(t, contract.Covers(anew, at(0), 20*time.Second, []contract.Through{{Source: orders.Source, Position: orders.Last}}))
}

func TestAdvance(t *testing.T) {
	through := func(offset int64) []contract.Through {
		return []contract.Through{{Source: accounts, Position: contract.Position{Offset: offset}}}
	}
	covered := []contract.Range{changes(5, 6, 0, 0), changes(8, 8, 0, 0)}
	require.Equal(t, through(8), contract.Advance(nil, covered, nil))
	require.Equal(t, through(6), contract.Advance(nil, covered, []contract.Range{changes(7, 7, 9, 9)}), "7 is pending")
	require.Empty(t, contract.Advance(nil, covered, []contract.Range{changes(4, 4, 9, 9)}))
	require.Equal(t, through(6), contract.Advance(nil, covered, []contract.Range{changes(8, 9, 9, 9)}), "8 is pending as well: told again, later")
	require.Empty(t, contract.Advance(nil, covered[:1], []contract.Range{changes(6, 6, 9, 9)}))
	require.Equal(t, through(9), contract.Advance(through(9), covered, nil), "never back")
}
