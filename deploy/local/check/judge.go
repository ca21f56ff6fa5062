package check

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Made is one change that was made.
type Made struct {
	Account string
	At      time.Time
}

// Lost returns the changes that no row covers, in their order: those of an
// account whose row is missing, or was called before the change had settled.
// Accounts that excused reports are left out: those whose records are dead
// letters, or that are parked and thus still owned by somebody. A nil excused
// excuses nobody.
func Lost(changes []Made, rows []Row, settle time.Duration, excused func(account string) bool) []Made {
	called := make(map[string]time.Time, len(rows))
	for _, row := range rows {
		called[row.Account] = row.CalledAt
	}
	var lost []Made
	for _, change := range changes {
		call, ok := called[change.Account]
		if ok && !change.At.Add(settle).After(call) || excused != nil && excused(change.Account) {
			continue
		}
		lost = append(lost, change)
	}
	return lost
}

// Stale returns the accounts, sorted, whose row differs from the truth: another
// version, no row, or a row for an account that there never was. Version 0 in
// the truth is a deleted account, whose row must say so.
func Stale(rows []Row, truth map[string]int64) []string {
	var stale []string
	found := make(map[string]bool, len(rows))
	for _, row := range rows {
		found[row.Account] = true
		version, known := truth[row.Account]
		if !known || row.Version != version || row.Deleted != (version == 0) {
			stale = append(stale, row.Account)
		}
	}
	for account := range truth {
		if !found[account] {
			stale = append(stale, account)
		}
	}
	slices.SortFunc(stale, strings.Compare)
	return stale
}

// MaxPerSecond returns the greatest number of times in any [t, t+1s). Two calls
// exactly one second apart are not in one second.
func MaxPerSecond(times []time.Time) int {
	sorted := slices.SortedFunc(slices.Values(times), time.Time.Compare)
	most, from := 0, 0
	for to := range sorted {
		for sorted[to].Sub(sorted[from]) >= time.Second {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// Staleness returns the 50th and 99th percentile, by nearest rank, of how long
// after a range's oldest change its account was written; 0 without any.
func Staleness(syncs []Sync) (p50, p99 time.Duration) {
	var ages []time.Duration
	for _, s := range syncs {
		for _, r := range s.Ranges {
			ages = append(ages, s.SyncedAt.Sub(r.Oldest))
		}
	}
	slices.Sort(ages)
	return percentile(ages, 0.50), percentile(ages, 0.99)
}

// percentile returns the value at the nearest rank in sorted values.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
