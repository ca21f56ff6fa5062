package check

import (
	"encoding/json"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// at is an instant, in seconds of the test's time.
func at(seconds float64) time.Time {
	return time.Unix(1_800_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func ats(seconds ...float64) []time.Time {
	times := make([]time.Time, len(seconds))
	for i, s := range seconds {
		times[i] = at(s)
	}
	return times
}

const (
	settle = 20 * time.Second
	delay  = 30 * time.Second
)

func TestOptimum(t *testing.T) {
	for _, test := range []struct {
		name    string
		changes []time.Time
		want    int
	}{
		{"none", nil, 0},
		{"one", ats(0), 1},
		{"at once", ats(0, 0, 0), 1},
		{"just settled at the deadline", ats(0, 10), 1},
		{"just too late", ats(0, 10.001), 2},
		{"unordered", ats(10.001, 0, 5), 2},
		{"chain of joiners", ats(0, 9, 18, 27), 2},
		{"far apart", ats(0, 100, 200), 3},
	} {
		if got := Optimum(test.changes, settle, delay); got != test.want {
			t.Errorf("%s: %d calls, want %d", test.name, got, test.want)
		}
	}
}

// TestOptimumAgainstBruteForce tries every set of calls at deadlines. Deadlines
// are enough: a call can be moved to the earliest deadline among the changes it
// covers without losing one.
func TestOptimumAgainstBruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := time.Duration(random.IntN(10)) * time.Second
		d := s + time.Duration(random.IntN(10))*time.Second
		changes := make([]time.Time, random.IntN(9))
		for i := range changes {
			changes[i] = at(float64(random.IntN(40)))
		}
		best := len(changes)
		for set := range 1 << len(changes) {
			covers := func(change time.Time) bool {
				for i := range changes {
					call := changes[i].Add(d)
					if set>>i&1 == 1 && !call.Before(change.Add(s)) && !call.After(change.Add(d)) {
						return true
					}
				}
				return false
			}
			if !slices.ContainsFunc(changes, func(c time.Time) bool { return !covers(c) }) {
				best = min(best, bits.OnesCount(uint(set)))
			}
		}
		if got := Optimum(slices.Clone(changes), s, d); got != best {
			t.Fatalf("S %s, D %s, changes %v: %d calls, brute force needs %d", s, d, changes, got, best)
		}
	}
}

// source is partition p of the one topic.
func source(p int32) contract.Source { return contract.Source{Topic: "changes", Partition: p} }

// changesAt is a range of source(0) with the offsets and change times.
func changesAt(first, last int64, oldest, newest float64) contract.Range {
	return contract.Range{
		Source: source(0), First: contract.Position{Offset: first}, Last: contract.Position{Offset: last},
		Count: int(last - first + 1), Oldest: at(oldest), Newest: at(newest),
	}
}

func TestOptimalCallsCountsPerAccountAndIgnoresRedeliveries(t *testing.T) {
	other := changesAt(0, 0, 200, 200)
	other.Source = source(1)
	syncs := []Sync{
		{Account: "a", SyncedAt: at(31), Ranges: []contract.Range{changesAt(0, 1, 0, 8)}},
		{Account: "b", SyncedAt: at(32), Ranges: []contract.Range{changesAt(2, 2, 1, 1)}},
		// Redelivered with the later arrival, and logged before it was the first
		// time round: the order of the log is not the order of rows.
		{Account: "a", SyncedAt: at(131), Ranges: []contract.Range{changesAt(0, 0, 100, 100)}},
		// The same offsets of another partition are other changes.
		{Account: "a", SyncedAt: at(231), Ranges: []contract.Range{other}},
		{Account: "c", SyncedAt: at(300)},
	}
	slices.Reverse(syncs)
	if got := OptimalCalls(syncs, settle, delay); got != 3 {
		t.Errorf("%d calls, want 3", got)
	}
	// One range whose ends no call can meet both needs two.
	wide := []Sync{{Account: "a", Ranges: []contract.Range{changesAt(0, 1, 0, 11)}}}
	if got := OptimalCalls(wide, settle, delay); got != 2 {
		t.Errorf("wide range: %d calls, want 2", got)
	}
}

func TestLost(t *testing.T) {
	rows := []Row{{Account: "a", CalledAt: at(30)}, {Account: "b", CalledAt: at(30)}}
	changes := []Made{{"a", at(0)}, {"a", at(10)}, {"b", at(10.001)}, {"c", at(0)}, {"d", at(0)}}
	lost := Lost(changes, rows, settle, func(account string) bool { return account == "d" })
	if want := []Made{{"b", at(10.001)}, {"c", at(0)}}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	if n := len(Lost(changes, rows, settle, nil)); n != 3 {
		t.Errorf("%d lost without excuses, want 3", n)
	}
}

func TestStale(t *testing.T) {
	rows := []Row{
		{Account: "right", Version: 3}, {Account: "old", Version: 2}, {Account: "gone", Deleted: true},
		{Account: "not-marked", Version: 1}, {Account: "marked", Deleted: true}, {Account: "invented", Version: 1}, {Account: "empty"},
	}
	truth := map[string]int64{"right": 3, "old": 3, "gone": 0, "not-marked": 0, "marked": 2, "missing": 1, "empty": 0}
	want := []string{"empty", "invented", "marked", "missing", "not-marked", "old"}
	if got := Stale(rows, truth); !slices.Equal(got, want) {
		t.Errorf("stale %v, want %v", got, want)
	}
}

func TestMaxPerSecond(t *testing.T) {
	for _, test := range []struct {
		times []time.Time
		want  int
	}{
		{nil, 0}, {ats(1), 1}, {ats(0, 1), 1}, {ats(0, 0.999), 2}, {ats(2, 0, 2.5, 1, 2.9), 3}, {ats(0.8, 0.9, 1.1, 1.2, 1.79), 5},
	} {
		if got := MaxPerSecond(test.times); got != test.want {
			t.Errorf("%v: %d, want %d", test.times, got, test.want)
		}
	}
}

func TestStaleness(t *testing.T) {
	if p50, p99 := Staleness(nil); p50 != 0 || p99 != 0 {
		t.Errorf("of nothing: %s, %s", p50, p99)
	}
	var syncs []Sync
	for i := range 100 { // ages 1 s to 100 s
		syncs = append(syncs, Sync{SyncedAt: at(500), Ranges: []contract.Range{changesAt(0, 1, 499-float64(i), 499.5)}})
	}
	if p50, p99 := Staleness(syncs); p50 != 50*time.Second || p99 != 99*time.Second {
		t.Errorf("p50 %s, p99 %s", p50, p99)
	}
}

func TestSummarize(t *testing.T) {
	good := Observed{
		Changes: []Made{{"a", at(0)}, {"a", at(1)}, {"b", at(0)}, {"b", at(1)}},
		Calls:   []upstream.Call{{Account: "a", Start: at(30)}, {Account: "b", Start: at(30.5)}},
		Truth:   map[string]int64{"a": 2, "b": 2},
		Rows:    []Row{{Account: "a", Version: 2, CalledAt: at(30)}, {Account: "b", Version: 2, CalledAt: at(30.5)}},
		Syncs: []Sync{
			{Account: "a", SyncedAt: at(31), Ranges: []contract.Range{changesAt(0, 1, 0, 1)}},
			{Account: "b", SyncedAt: at(31), Ranges: []contract.Range{changesAt(2, 3, 0, 1)}},
		},
		Settle: settle, Delay: delay,
	}
	summary := Summarize(good)
	want := Summary{Changes: 4, Calls: 2, SavedRatio: 0.5, OptimalCalls: 2, Accounts: 2, MaxCallsPerSecond: 2, StalenessP50: 31000, StalenessP99: 31000}
	if summary != want || summary.Err() != nil {
		t.Errorf("summary %+v, %v", summary, summary.Err())
	}
	for _, test := range []struct {
		name  string
		spoil func(*Observed)
		says  string
	}{
		{"lost", func(o *Observed) { o.Rows = []Row{{Account: "a", Version: 2, CalledAt: at(20.5)}, o.Rows[1]} }, "lost_changes is 1,"},
		{"stale", func(o *Observed) { o.Truth = map[string]int64{"a": 3, "b": 2} }, "stale_accounts is 1,"},
		{"uncommitted", func(o *Observed) { o.Uncommitted = 5 }, "uncommitted is 5,"},
		{"too many calls", func(o *Observed) { o.Calls = append(slices.Clone(o.Calls), o.Calls[0]) }, "calls are 3, more than the optimal 2"},
	} {
		o := good
		test.spoil(&o)
		if err := Summarize(o).Err(); err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), ";") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	excused := good
	excused.Rows = excused.Rows[:1]
	excused.Parked = map[string]bool{"b": true}
	if s := Summarize(excused); s.LostChanges != 0 || s.Parked != 1 || s.StaleAccounts != 1 {
		t.Errorf("parked account: %+v", s)
	}
}

func TestSummaryFieldsAreTheContract(t *testing.T) {
	text, err := json.Marshal(Summary{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"changes":0,"calls":0,"saved_ratio":0,"optimal_calls":0,"accounts":0,"stale_accounts":0,"lost_changes":0,` +
		`"uncommitted":0,"max_calls_per_second":0,"dead_letters":0,"parked":0,"staleness_p50_ms":0,"staleness_p99_ms":0}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
}

func TestPayloadVersion(t *testing.T) {
	for payload, want := range map[string]int64{`{"version":7,"email":"x"}`: 7, `{}`: 0, `garbage`: 0, ``: 0} {
		if got := payloadVersion(payload); got != want {
			t.Errorf("%q: %d", payload, got)
		}
	}
}
