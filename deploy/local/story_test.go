package main

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

var start = time.Unix(1_800_000_000, 0)

// at is a time of that many seconds.
func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func TestCallsServeWhatTheyAreTheFirstToCover(t *testing.T) {
	var changes []load.Change
	for _, c := range []struct {
		account string
		at      float64
	}{{"a", 0}, {"a", 0.5}, {"a", 1.5}, {"b", 0}, {"b", 0.1}, {"b", 2.5}, {"c", 0}} {
		changes = append(changes, load.Change{Account: c.account, At: at(c.at)})
	}
	calls := []upstream.Call{
		{Account: "a", Start: at(3), Status: 503}, // served nobody
		{Account: "b", Start: at(3), Status: 200}, // 2; the third comes too late
		{Account: "a", Start: at(3.5), Status: 200},
		{Account: "c", Start: at(3.5), Status: 200},
		{Account: "b", Start: at(5), Status: 200}, // 1
	}
	all := attribute(changes, calls, 2*time.Second)
	var counts []int
	for _, s := range all {
		counts = append(counts, s.changes)
	}
	if want := []int{0, 2, 3, 1, 1}; !slices.Equal(counts, want) || covered(all) != 7 {
		t.Errorf("served %v of %d, want %v", counts, covered(all), want)
	}
	best, found := bestShared(all, at(0))
	if want := (served{call: calls[2], changes: 3, over: 1500 * time.Millisecond}); !found || best != want {
		t.Errorf("best %+v, want %+v", best, want)
	}
	if best, found = bestShared(all, at(4)); found {
		t.Errorf("since then no call was shared, got %+v", best)
	}
	text := why(all, 950*time.Millisecond)
	if want := "Why: of 5 calls, 1 served nothing new, 2 served one change, 1 served two, 1 served three.\nA change"; !strings.HasPrefix(text, want) {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestWhatAKeyDidIsToldInFigures(t *testing.T) {
	call := func(account string, s float64, status, changes int) served {
		return served{call: upstream.Call{Account: account, Start: at(s), Status: status}, changes: changes}
	}
	delay := 3 * time.Second
	a := &aftermath{what: "the kill of the worker", at: at(10), due: at(16), before: live{oldest: 3200 * time.Millisecond}}
	after := live{oldest: 3500 * time.Millisecond, served: []served{
		call("before", 9, 200, 1), call("a", 10.5, 200, 2), call("b", 15, 200, 0), call("c", 16, 503, 0), call("d", 17, 404, 1),
	}}
	for _, step := range []struct {
		s      float64
		oldest time.Duration
		lag    int64
		over   bool
	}{
		{11, 3 * time.Second, 40, false},         // too early to tell
		{15, 8 * time.Second, 90, false},         //
		{17, 7 * time.Second, 80, false},         // not yet as before
		{18, 4100 * time.Millisecond, 50, true},  // within a second of what was before
		{19, 4300 * time.Millisecond, 50, false}, // not within it
	} {
		if over := a.see(live{oldest: step.oldest, lag: step.lag}, at(step.s), delay); over != step.over {
			t.Errorf("after %g s with %s: over %v", step.s, step.oldest, over)
		}
	}
	want := "What the kill of the worker did: upstream answered no call for 4.5 s, up to 90 changes waited, the oldest for up to 8.0 s\n" +
		"(3.2 s before), and 8 s after it all was as before. Calls since: 4; refused: 1; with nothing new: 1.\n" +
		"Stale 0, lost 0."
	if text := a.tell(after, at(18), true); text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if text := a.tell(after, at(18), false); !strings.Contains(text, "it was not over when the changes ended") {
		t.Errorf("%q", text)
	}
	hot := &aftermath{at: at(10), before: live{covered: 10, calls: 8}}
	text := hot.tellHot(live{covered: 40, calls: 20, served: []served{call(hotAccount, 9, 200, 1), call(hotAccount, 12, 200, 9)}}, 30, at(20))
	if want := "In 10 s it changed 30 times and was called 1 times. The saved share of all accounts was 20.0% before and is 50.0% now."; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestAHotAccountThatCoolsLeavesNoChangeUnannounced(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	generator := load.New(load.Default(), upstream.New(upstream.Config{}), client, "changes")
	acts := &incidents{demo: &demo{generator: generator}, note: func(string, ...any) {}}
	acts.toggleHot()
	for len(generator.Changes()) == 0 {
		runtime.Gosched()
	}
	acts.toggleHot() // its record is not sent yet
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, change := range generator.Changes() {
		if change.Offset < 0 {
			t.Errorf("%+v was made and not announced", change)
		}
	}
}

func TestHintsAreShownWhileChangesAreMade(t *testing.T) {
	var out bytes.Buffer
	d := &demo{opts: demoOptions{heartbeat: 3 * time.Second, session: 6 * time.Second}}
	v := &view{out: &out, terminal: true, start: time.Now(), now: time.Now, hints: d.hints}
	v.show(live{pending: 57})
	if text := out.String(); !strings.Contains(text, "57 changes wait in Temporal; calls go on in 3s to 15s") || v.lines != 12 {
		t.Errorf("%d lines: %q", v.lines, text)
	}
	out.Reset()
	v.show(live{draining: true})
	if text := out.String(); !strings.HasPrefix(text, "\x1b[12F\x1b[J") || strings.Contains(text, "kill the") || v.lines != 9 {
		t.Errorf("%d lines: %q", v.lines, text)
	}
}

func TestKeysAreReadAndFaultsNamed(t *testing.T) {
	keys, err := parseKeys("w@10s, q@1m")
	if want := []pressed{{'w', 10 * time.Second}, {'q', time.Minute}}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("keys %v, %v", keys, err)
	}
	for _, text := range []string{"x@1s", "w", "w@soon", "wb@1s", "w@-1s"} {
		if _, err := parseKeys(text); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "keys="+text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeysComeAtTheirTimes(t *testing.T) {
	keys, typed, restore := listenKeys(t.Context(), []pressed{{'b', 2 * time.Millisecond}, {'w', 0}}, false)
	defer restore()
	if first, second := <-keys, <-keys; first != 'w' || second != 'b' || typed {
		t.Errorf("%c, %c, typed %v", first, second, typed)
	}
}

func TestReportForgivesCallsOfADisturbedRunOnly(t *testing.T) {
	summary := check.Summary{Changes: 10, Calls: 7, OptimalCalls: 5, SavedRatio: 0.3}
	var out bytes.Buffer
	if err := report(summary, "", false, &out); err == nil {
		t.Error("more calls than the fewest, undisturbed: no error")
	}
	out.Reset()
	if err := report(summary, "", true, &out); err != nil || !strings.Contains(out.String(), "The fewest possible are 5; the other 2") {
		t.Errorf("disturbed: %v\n%s", err, &out)
	}
	summary.LostChanges = 1
	if err := report(summary, "", true, &out); err == nil {
		t.Error("a lost change is forgiven")
	}
}

func TestNotesStayAboveWhatIsRedrawn(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, terminal: true, start: time.Now(), now: time.Now}
	v.show(live{changes: 1})
	drawn := v.lines
	out.Reset()
	v.note("upstream is %s", "out")
	text := out.String()
	if !strings.HasPrefix(text, "\x1b[9F\x1b[J"+"upstream is out\n") || drawn != 9 || v.lines != 9 {
		t.Errorf("%d lines before, %d after: %q", drawn, v.lines, text)
	}
}
