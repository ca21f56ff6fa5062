package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

func TestBestSharedIsTheCallThatServedMost(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
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
	best, found := bestShared(changes, calls, 2*time.Second, at(0))
	if want := (shared{account: "a", changes: 3, over: 1500 * time.Millisecond}); !found || best != want {
		t.Errorf("best %+v, want %+v", best, want)
	}
	if best, found = bestShared(changes, calls, 2*time.Second, at(4)); found {
		t.Errorf("since then no call was shared, got %+v", best)
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
