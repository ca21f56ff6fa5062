package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

func TestUsageErrorsExitWithTwoAndOneHint(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "usage:"},
		{[]string{"dmeo"}, `unknown command "dmeo"`},
		{[]string{"demo", "--durration", "1s"}, "-durration"},
		{[]string{"demo", "--summary", "/no/such/directory/summary.json"}, "--summary: open /no/such/directory/summary.json"},
		{[]string{"demo", "extra"}, `unexpected argument "extra"`},
		{[]string{"demo", "--settle-delay", "2s"}, "settle-delay=2s: must be at least settle-time + max-clock-skew = 2.05s"},
		{[]string{"stack", "--accounts", "0", "--upstream-rps", "0"}, "upstream-rps=0"},
		{[]string{"demo", "--upstream-rps", "2.5"}, `invalid value "2.5" for flag -upstream-rps`},
		{[]string{"demo", "--upstream-rps", "1000000"}, "upstream-rps=1000000: must be from 1 to 100000"},
		{[]string{"stack", "--max-clock-skew", "0"}, "max-clock-skew=0s: must be above 0"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(test.args, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, code, &stderr)
		}
	}
	var stdout, stderr bytes.Buffer
	run([]string{"stack", "--accounts", "0", "--upstream-rps", "0"}, &stdout, &stderr)
	if !strings.Contains(stderr.String(), "accounts=0") {
		t.Errorf("not all faults are named: %s", &stderr)
	}
	if code := run([]string{"demo", "-h"}, &stdout, &stderr); code != 0 {
		t.Errorf("help: exit code %d", code)
	}
}

func TestWriteEnvCanBeSourced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "stack.env")
	const value = `http://127.0.0.1:1/accounts/{account}?a='b' $HOME`
	if err := writeEnv(path, []string{"PIPELINE=other", "PIPELINE=local", "UPSTREAM_URL=" + value}); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); strings.Count(string(text), "\n") != 2 {
		t.Errorf("file %s", text)
	}
	out, err := exec.Command("/bin/sh", "-c", `. "$1" && /bin/sh -c 'printf "%s %s" "$PIPELINE" "$UPSTREAM_URL"'`, "sh", path).Output()
	if err != nil || string(out) != "local "+value {
		t.Errorf("sourced: %q, %v", out, err)
	}
}

func TestPathsBelowAreShort(t *testing.T) {
	for path, want := range map[string]string{"/a/b/c": "b/c", "/x": "/x", "/ab": "/ab"} {
		if got := below("/a", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestCountBroken(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	changes := []load.Change{
		{Account: "fine", Version: 1, At: at(0), Partition: 0, Offset: 0},
		{Account: "pending", Version: 1, At: at(0), Partition: 0, Offset: 7},
		{Account: "lost", Version: 1, At: at(0), Partition: 0, Offset: 1},
		{Account: "early", Version: 1, At: at(1.5), Partition: 0, Offset: 2},
		{Account: "failed", Version: 1, At: at(0), Partition: 0, Offset: 3},
		{Account: "stale", Version: 2, At: at(0), Partition: 1, Offset: 0},
		{Account: "unacknowledged", Version: 1, At: at(0), Offset: -1},
		{Account: "no-commit", Version: 1, At: at(0), Partition: 2, Offset: 0},
		{Account: "gone", Version: 2, At: at(0), Partition: 0, Offset: 4},
	}
	calls := []upstream.Call{
		{Account: "fine", Start: at(2), Version: 1, Status: 200},
		{Account: "early", Start: at(3), Version: 1, Status: 200},
		{Account: "failed", Start: at(3), Status: 500},
		{Account: "stale", Start: at(3), Version: 1, Status: 200},
		{Account: "gone", Start: at(3), Status: 404},
	}
	stale, lost := countBroken(changes, calls, map[int32]int64{0: 5, 1: 1, 2: -1}, 2*time.Second)
	if stale != 1 || lost != 3 { // lost, early, failed
		t.Errorf("stale %d, lost %d", stale, lost)
	}
}

func TestOldestUncommitted(t *testing.T) {
	changes := []load.Change{
		{At: at(0), Partition: 0, Offset: 0}, {At: at(1), Partition: 1, Offset: 0}, {At: at(2), Partition: 0, Offset: 1}, {At: at(3), Offset: -1},
	}
	for _, test := range []struct {
		committed map[int32]int64
		want      time.Duration
	}{
		{nil, 10 * time.Second},
		{map[int32]int64{0: 1, 1: 1}, 8 * time.Second},
		{map[int32]int64{0: 2, 1: 1}, 7 * time.Second}, // not acknowledged yet
		{map[int32]int64{0: 2, 1: -1}, 9 * time.Second},
	} {
		if got := oldestUncommitted(changes, test.committed, at(10)); got != test.want {
			t.Errorf("%v: %s, want %s", test.committed, got, test.want)
		}
	}
}

func TestParseParked(t *testing.T) {
	for text, want := range map[string][]string{
		``: nil, `[]`: nil, `null`: nil,
		`[{"account":"a","reason":"x"},{"account":"b"}]`: {"a", "b"},
		"{\"account\":\"a\"}\n{\"account\":\"b\"}\n":     {"a", "b"},
	} {
		accounts, err := parseParked([]byte(text))
		if got := slices.Sorted(maps.Keys(accounts)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{`nothing is parked`, `[{"key":"a"}]`, `[1]`} {
		if accounts, err := parseParked([]byte(text)); err == nil {
			t.Errorf("%s: %v", text, accounts)
		}
	}
}

func TestReadStatus(t *testing.T) {
	answer := `{"pipeline":"demo","uncommitted":3}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answer) }))
	defer server.Close()
	read := func() (state bridgeState, err error) {
		err = readStatus(t.Context(), server.URL, &state)
		return state, err
	}
	state, err := read()
	if want := (bridgeState{3}); state != want || err != nil {
		t.Errorf("%+v, %v", state, err)
	}
	answer = `{}`
	if state, err := read(); state != (bridgeState{}) || err != nil {
		t.Errorf("absent fields: %+v, %v", state, err)
	}
	answer = `<html>`
	if _, err := read(); err == nil {
		t.Error("a page was accepted")
	}
}

func TestPlainViewPrintsNowAndThen(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	now := v.start
	v.now = func() time.Time { return now }
	for second := range 13 {
		now = v.start.Add(time.Duration(second) * time.Second)
		v.show(live{changes: 13, covered: 10, calls: 5, pending: second, draining: second >= 7})
	}
	v.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var seen []string
	for _, line := range lines {
		seen = append(seen, strings.Fields(line)[0])
	}
	if want := []string{"0s", "5s", "7s", "12s"}; !slices.Equal(seen, want) {
		t.Errorf("lines at %v, want %v", seen, want)
	}
	for _, part := range []string{"changes 13", "calls 5", "saved 50.0%", "pending 7", "oldest uncommitted 0.0s", "watermark lag 0", "stale 0", "lost 0"} {
		if !strings.Contains(lines[2], part) {
			t.Errorf("no %q in %q", part, lines[2])
		}
	}
	if strings.Contains(lines[1], "draining") || !strings.Contains(lines[2], "draining") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("lines %q", lines)
	}
}

func TestTerminalViewRedrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out)
	v.terminal = true
	v.show(live{changes: 10, calls: 4, lost: 2})
	drawn := strings.Count(out.String(), "\n")
	if strings.Contains(out.String(), "\x1b[9F") || !strings.Contains(out.String(), "\x1b[31m2") {
		t.Errorf("first drawing %q", &out)
	}
	out.Reset()
	v.show(live{})
	if !strings.HasPrefix(out.String(), fmt.Sprintf("\x1b[%dF", drawn)) || strings.Count(out.String(), "\n") != drawn {
		t.Errorf("second drawing %q", &out)
	}
}

func TestReportWritesTheSummary(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "summary.json")
	summary := check.Summary{Changes: 4, Calls: 2, OptimalCalls: 2, SavedRatio: 0.5}
	if err := report(summary, file, false, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	var read check.Summary
	if err != nil || json.Unmarshal(text, &read) != nil || read != summary {
		t.Errorf("file %s, %v", text, err)
	}
	summary.LostChanges = 1
	if err := report(summary, file, false, &out); err == nil || errors.Is(err, errUsage) {
		t.Errorf("a lost change: %v", err)
	}
}
