package allot

import (
	"cmp"
	"slices"
)

// want is one worker's part in [fill].
type want struct {
	name   string
	demand int
	holds  int // what it has now, which settles ties
	share  int // the result
}

// fill shares limit out among wants, max–min fair, in whole numbers: the shares
// sum to limit, or to all demand if that is less. It reorders wants.
func fill(limit int, wants []want) {
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.demand, b.demand), cmp.Compare(a.holds, b.holds), cmp.Compare(b.name, a.name))
	})
	for i := range wants {
		level := limit / (len(wants) - i)
		if wants[i].demand > level {
			// Nobody from here on can have all. The remainder goes one each to
			// those who hold most.
			rest := wants[i:]
			slices.SortFunc(rest, func(a, b want) int {
				return cmp.Or(cmp.Compare(b.holds, a.holds), cmp.Compare(a.name, b.name))
			})
			for k := range rest {
				rest[k].share = level
				if k < limit%len(rest) {
					rest[k].share++
				}
			}
			return
		}
		wants[i].share = wants[i].demand
		limit -= wants[i].share
	}
}
