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

// temporal are the settings that Temporal's envconfig reads. No other name is a
// mistake for its prefix alone: Temporal's CLI and server have variables of their
// own, and TEMPORAL_GRPC_META_ takes any ending.
var temporal = []string{
	"TEMPORAL_ADDRESS", "TEMPORAL_API_KEY", "TEMPORAL_CLIENT_AUTHORITY", "TEMPORAL_CODEC_AUTH", "TEMPORAL_CODEC_ENDPOINT",
	"TEMPORAL_CONFIG_FILE", "TEMPORAL_NAMESPACE", "TEMPORAL_PROFILE", "TEMPORAL_TLS", "TEMPORAL_TLS_CLIENT_CERT_DATA",
	"TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_DATA", "TEMPORAL_TLS_CLIENT_KEY_PATH",
	"TEMPORAL_TLS_DISABLE_HOST_VERIFICATION", "TEMPORAL_TLS_SERVER_CA_CERT_DATA", "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
	"TEMPORAL_TLS_SERVER_NAME",
}

// foreign are variables of others that begin like ours: those that Kubernetes
// sets for services called kafka or upstream, and those that Google's Spanner
// client reads.
var foreign = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP)(_\w+)?)?$|^SPANNER_(EMULATOR_HOST|OPTIMIZER_\w+|ENABLE_\w+|DISABLE_\w+)$`)

// farthest is how many slips of the keyboard make one name another.
const farthest = 2

// shortest is how long a name, after TEMPORAL_, must be to be taken for a misspelt
// one without one of our prefixes: TEMPORAL_TAG is not meant for TEMPORAL_TLS.
const shortest = 6

// Misspelt returns those of the names that are within two slips of a known
// setting, ours or Temporal's, or begin with one of our prefixes, and are no
// setting. NAME_FILE is known where NAME is: secrets have both.
func Misspelt(known, names []string) []Misspelling {
	var found []Misspelling
	all := slices.Concat(known, temporal)
	for _, name := range names {
		if slices.Contains(all, strings.TrimSuffix(name, "_FILE")) || slices.Contains(all, name) || foreign.MatchString(name) || len(known) == 0 {
			continue
		}
		upper := strings.ToUpper(name)
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			found = append(found, Misspelling{Name: name, Nearest: nearest(upper, known)})
			continue
		}
		nearest := nearest(upper, all)
		if len(strings.TrimPrefix(upper, "TEMPORAL_")) >= shortest && slips(upper, nearest) <= farthest {
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
