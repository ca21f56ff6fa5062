package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// served is what one call was good for: how many changes of its account it was
// the first to cover, and over what time they came.
type served struct {
	call    upstream.Call
	changes int
	over    time.Duration
}

// answered reports whether the call says how the account is.
func answered(call upstream.Call) bool {
	return call.Status == http.StatusOK || call.Status == http.StatusNotFound
}

// attribute tells of every call what it was good for. Changes of an account, and
// calls, come in the order in which they were made.
func attribute(changes []load.Change, calls []upstream.Call, settle time.Duration) []served {
	times, next := map[string][]time.Time{}, map[string]int{}
	for _, c := range changes {
		times[c.Account] = append(times[c.Account], c.At)
	}
	all := make([]served, 0, len(calls))
	for _, call := range calls {
		one := served{call: call}
		if own, from := times[call.Account], next[call.Account]; answered(call) {
			to := from
			for to < len(own) && !own[to].Add(settle).After(call.Start) {
				to++
			}
			if one.changes = to - from; one.changes > 0 {
				one.over = own[to-1].Sub(own[from])
			}
			next[call.Account] = to
		}
		all = append(all, one)
	}
	return all
}

// covered counts the changes that some call served.
func covered(all []served) int {
	sum := 0
	for _, s := range all {
		sum += s.changes
	}
	return sum
}

// bestShared returns the call that served the most changes, of those since the
// given time that served two or more; of several the latest.
func bestShared(all []served, since time.Time) (best served, found bool) {
	for _, s := range all {
		if s.changes >= 2 && s.changes >= best.changes && s.call.Start.After(since) {
			best, found = s, true
		}
	}
	return best, found
}

// why tells where the saved share comes from: how many calls served how many
// changes. window is how long others may join a first change.
func why(all []served, window time.Duration) string {
	var counts [5]int // of calls that served so many changes; the last: or more
	for _, s := range all {
		counts[min(s.changes, len(counts)-1)]++
	}
	var parts []string
	for n, label := range []string{"nothing new", "one change", "two", "three", "four or more"} {
		if counts[n] > 0 {
			parts = append(parts, fmt.Sprintf("%d served %s", counts[n], label))
		}
	}
	text := fmt.Sprintf("Why: of %d calls, %s.\nA change that no other of its account follows within %s costs a call of its own;\n"+
		"a longer --settle-delay saves more, and so does a --hot account.", len(all), strings.Join(parts, ", "), window)
	if counts[0] > 0 {
		text += "\nNothing new is found where a call was cut off and made again, or where the call before\n" +
			"came a few ms too early by the record, though not by the change itself."
	}
	return text
}
