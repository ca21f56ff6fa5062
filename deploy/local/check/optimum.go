package check

import (
	"slices"
	"time"
)

// OptimalCalls returns the least number of calls that cover all changes in the
// sync log, account by account, if each change needs a call between settle (S)
// and delay (D) after it.
func OptimalCalls(syncs []Sync, settle, delay time.Duration) int {
	n := 0
	for _, times := range changeTimes(syncs) {
		n += Optimum(times, settle, delay)
	}
	return n
}

// Optimum returns the least number of calls such that for each change there is
// one in [change+settle, change+delay]: interval stabbing, earliest deadline
// first. A call at the earliest deadline that is still open is never worse than
// an earlier one, since every open interval that the earlier one meets is met
// by it too. It needs settle ≤ delay and does not keep the order of changes.
func Optimum(changes []time.Time, settle, delay time.Duration) int {
	slices.SortFunc(changes, time.Time.Compare)
	calls := 0
	var call time.Time
	for _, change := range changes {
		if calls == 0 || change.Add(settle).After(call) {
			call = change.Add(delay)
			calls++
		}
	}
	return calls
}

// changeTimes returns each account's change times: the oldest and newest of the
// ranges in the log. A call that meets both meets whatever lies between. A
// range that was logged before, by position, is a redelivery and no change.
func changeTimes(syncs []Sync) map[string][]time.Time {
	ordered := slices.Clone(syncs)
	slices.SortStableFunc(ordered, func(a, b Sync) int { return a.SyncedAt.Compare(b.SyncedAt) })
	times := map[string][]time.Time{}
	logged := map[string][]Sync{}
	for _, s := range ordered {
		for _, r := range s.Ranges {
			again := slices.ContainsFunc(logged[s.Account], func(earlier Sync) bool {
				for _, e := range earlier.Ranges {
					if e.Contains(r.Source, r.First) && e.Contains(r.Source, r.Last) {
						return true
					}
				}
				return false
			})
			if !again {
				times[s.Account] = append(times[s.Account], r.Oldest, r.Newest)
			}
		}
		logged[s.Account] = append(logged[s.Account], s)
	}
	return times
}
