package contract_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// sparse is changes(first, last) of which only count are the account's.
func sparse(first, last int64, count int) contract.Range {
	r := changes(first, last, 0, 4)
	r.Count = count
	return r
}

func TestWithout(t *testing.T) {
	for name, c := range map[string]struct{ pending, shown, left []contract.Range }{
		"as shown":                 {[]contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(1, 5, 0, 4)}, nil},
		"merged since":             {[]contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(3, 5, 2, 4), changes(1, 2, 0, 1)}, nil},
		"joined since":             {[]contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(1, 3, 0, 2)}, []contract.Range{changes(4, 5, 0, 4)}},
		"joined in front":          {[]contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(2, 5, 1, 4)}, []contract.Range{changes(1, 5, 0, 4)}},
		"sparse, merged since":     {[]contract.Range{sparse(1, 9, 4)}, []contract.Range{sparse(1, 3, 2), sparse(7, 9, 2)}, nil},
		"sparse, joined since":     {[]contract.Range{sparse(1, 9, 5)}, []contract.Range{sparse(1, 3, 2), sparse(7, 9, 2)}, []contract.Range{sparse(4, 9, 3)}},
		"another":                  {[]contract.Range{changes(6, 6, 0, 4)}, []contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(6, 6, 0, 4)}},
		"within what was shown":    {[]contract.Range{changes(3, 3, 0, 4)}, []contract.Range{sparse(1, 5, 2)}, nil},
		"shown twice, overlapped":  {[]contract.Range{changes(1, 5, 0, 4)}, []contract.Range{changes(1, 3, 0, 4), changes(2, 3, 0, 4)}, []contract.Range{changes(4, 5, 0, 4)}},
		"joined with a redelivery": {[]contract.Range{sparse(1, 5, 3)}, []contract.Range{sparse(1, 3, 3)}, []contract.Range{sparse(4, 5, 1)}},
		"cut leaves one at least":  {[]contract.Range{sparse(1, 9, 2)}, []contract.Range{sparse(1, 3, 3)}, []contract.Range{sparse(4, 9, 1)}},
		"joined, of fewer":         {[]contract.Range{sparse(1, 9, 2)}, []contract.Range{sparse(1, 5, 5)}, []contract.Range{sparse(6, 9, 1)}},
		"joined in front, merged":  {[]contract.Range{sparse(1, 9, 2)}, []contract.Range{sparse(4, 9, 2)}, []contract.Range{sparse(1, 9, 2)}},
	} {
		left, dropped := contract.Without(c.pending, c.shown)
		require.Equal(t, c.left, left, name)
		require.Equal(t, contract.Count(c.pending), contract.Count(left)+contract.Count(dropped), name)
	}
}

// A bridge that took over cuts its signals differently: what it tells again,
// together with a change that is new, is merged with what the operator was shown.
func TestARedeliveryDoesNotHideANewChange(t *testing.T) {
	shown := []contract.Range{changes(1, 3, 0, 0)}
	again := changes(2, 5, 0, 0)
	again.Count = 3 // 2, 3 and the new 5
	pending := contract.Coalesce(append(slices.Clone(shown), again), at(100), settings)
	require.Len(t, pending, 1)
	left, _ := contract.Without(pending, shown)
	require.Len(t, left, 1)
	require.True(t, left[0].Contains(accounts, contract.Position{Offset: 5}))
	require.False(t, left[0].Contains(accounts, contract.Position{Offset: 3}))
}

// Whatever joins and is merged between showing and dropping, only what was shown
// is dropped, and nothing else is forgotten.
func TestNothingIsDroppedThatWasNotShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		single := func(offsets []int64) (ranges []contract.Range) {
			for _, o := range offsets {
				ranges = append(ranges, changes(o, o, float64(o), float64(o)))
			}
			return ranges
		}
		offset := rapid.Int64Range(0, 30)
		first := rapid.SliceOfNDistinct(offset, 1, 10, rapid.ID).Draw(t, "shown")
		// A change that has come since lies behind those of its partition, or is
		// one that was redelivered.
		later := rapid.SliceOfNDistinct(rapid.Int64Range(slices.Max(first)+1, 60), 0, 10, rapid.ID).Draw(t, "later")
		shown := contract.Coalesce(single(first), at(rapid.Float64Range(0, 80).Draw(t, "at")), settings)
		pending := contract.Coalesce(append(append([]contract.Range{}, shown...), single(later)...), at(rapid.Float64Range(0, 80).Draw(t, "then")), settings)
		left, dropped := contract.Without(pending, shown)
		if contract.Count(left)+contract.Count(dropped) != len(first)+len(later) {
			t.Fatalf("%d changes have become %v and %v", len(first)+len(later), left, dropped)
		}
		for _, o := range later {
			kept := false
			for _, r := range left {
				kept = kept || r.Contains(accounts, contract.Position{Offset: o})
			}
			if !kept {
				t.Fatalf("%d was not shown and is gone: shown %v, pending %v, left %v", o, shown, pending, left)
			}
		}
	})
}
