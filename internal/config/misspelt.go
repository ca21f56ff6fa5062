package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Misspelling is a variable that looks like a setting and is none: it would be
// ignored in silence.
type Misspelling struct{ Name, Nearest string }

// String says it in one line.
func (m Misspelling) String() string {
	return fmt.Sprintf("%s is set and means nothing here; did you mean %s?", m.Name, m.Nearest)
}

// prefixes are ours: whatever begins so is meant for us.
var prefixes = []string{"BUFFER_", "COMMIT_", "KAFKA_", "SETTLE_", "SIGNAL_", "SPANNER_", "SYNC_", "UPSTREAM_"}

// foreign are variables of others that begin like ours: those that Kubernetes
// sets for services called kafka or upstream, and those that Google's Spanner
// client reads.
var foreign = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP)(_\w+)?)?$|^SPANNER_(EMULATOR_HOST|OPTIMIZER_\w+|ENABLE_\w+|DISABLE_\w+)$`)

// farthest is how many slips of the keyboard make one name another.
const farthest = 2

// shortest is how long a name must be to be taken for a misspelt one without one
// of our prefixes.
const shortest = 6

// Misspelt returns those of the names that are within two slips of a known
// setting, or begin with one of our prefixes, and are no setting. NAME_FILE is
// known where NAME is: secrets have both.
func Misspelt(known, names []string) []Misspelling {
	var found []Misspelling
	for _, name := range names {
		if slices.Contains(known, strings.TrimSuffix(name, "_FILE")) || slices.Contains(known, name) || foreign.MatchString(name) || len(known) == 0 {
			continue
		}
		nearest := nearest(strings.ToUpper(name), known)
		ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if ours || len(name) >= shortest && slips(strings.ToUpper(name), nearest) <= farthest {
			found = append(found, Misspelling{Name: name, Nearest: nearest})
		}
	}
	slices.SortFunc(found, func(a, b Misspelling) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// nearest returns the known name that is the fewest slips away.
func nearest(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return cmp.Compare(slips(name, a), slips(name, b)) })
}

// slips is the number of letters to add, drop, change or swap with their
// neighbour that make a into b (optimal string alignment).
func slips(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		above, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			changed := last[j-1]
			if a[i-1] != b[j-1] {
				changed++
			}
			row[j] = min(changed, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], above[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, above
	}
	return rows[1][len(b)]
}
