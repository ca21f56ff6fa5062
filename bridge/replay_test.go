package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestReplayUsage(t *testing.T) {
	environment := map[string]string{"PIPELINE": "crm"}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{}, []string{"say what to replay", "--reason is required"}},
		{[]string{"--accounts", "a", "--since", "1h", "--reason", "x"}, []string{"say what to replay: one of"}},
		{[]string{"--accounts", "a", "--until", "1h", "--reason", "x"}, []string{"--until goes together"}},
		{[]string{"--accounts", "a", "--reason", " "}, []string{"--reason is required"}},
		{[]string{"--accounts", "a", "--reason", "x", "--id", "A b", "--max-rps", "-1", "--in-flight", "0"}, []string{`--id "A b"`, "--max-rps -1", "--in-flight 0"}},
		{[]string{"--accounts", "a,,b", "--reason", "x"}, []string{"an account key is empty"}},
		{[]string{"--records", "changes/0/1-2", "--reason", "x"}, []string{"KAFKA_BROKERS: is required"}},
		{[]string{"--since", "1h", "--dry-run", "--kafka-brokers", "localhost:1"}, []string{"KAFKA_TOPICS: is required"}},
	} {
		_, stderr, code := invoke(t, environment, append([]string{"replay"}, test.args...)...)
		require.Equal(t, process.ExitUsage, code, test.args)
		for _, want := range test.want {
			require.Contains(t, stderr, want)
		}
	}
	_, stderr, code := invoke(t, environment, "replay", "pause")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "ID is missing")
}

// TestDryRunWithoutTemporal: what a replay would do can be told all the same, and
// that the budget could not be asked is.
func TestDryRunWithoutTemporal(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	environment := map[string]string{"PIPELINE": "crm", "UPSTREAM_RPS": "2", "START_TIMEOUT": "200ms"}
	stdout, stderr, code := invoke(t, environment, "replay", "--accounts", "a,b,c,a", "--dry-run", "--json")
	require.Equal(t, process.ExitOK, code, stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Contains(t, got["note"], "what the budget has free is not known: ")
	delete(got, "note")
	require.Equal(t, map[string]any{"what": "3 named accounts", "changes": 3.0, "accounts": 3.0, "invalid": 0.0, "calls": 3.0, "calls_per_second": 2.0, "duration_seconds": 1.5}, got)

	stdout, _, code = invoke(t, environment, "replay", "--accounts", "a,b,c", "--dry-run", "--max-rps", "0.1")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "duration  30s, at 0.1 calls a second, if all of UPSTREAM_RPS or --max-rps is free\nnote      what the budget has free is not known: ")
}

// TestDryRunReckonsWithWhatIsFree of the budget, never with all of it.
func TestDryRunReckonsWithWhatIsFree(t *testing.T) {
	for _, test := range []struct {
		name   string
		budget replay.Budget
		err    error
		rps    int
		max    float64
		want   string
	}{
		{"free", replay.Budget{Limit: 15, InUse: 5}, nil, 15, 0, "duration  10s, at 10 calls a second; free of the budget now: 10 of 15\n"},
		{"an operator's limit holds, not the setting", replay.Budget{Limit: 5}, nil, 15, 0, "duration  20s, at 5 calls a second; free of the budget now: 5 of 5\n"},
		{"less than is free", replay.Budget{Limit: 15, InUse: 5}, nil, 15, 2, "duration  50s, at 2 calls a second; free of the budget now: 10 of 15\n"},
		{"more than is free", replay.Budget{Limit: 15, InUse: 5}, nil, 15, 20, "duration  10s, at 10 calls a second; free of the budget now: 10 of 15\n"},
		{"nothing is free", replay.Budget{Limit: 15, InUse: 30}, nil, 15, 2, "duration  not known: live changes have use for all of the budget now, 15 calls a second\n"},
		{"nothing is granted", replay.Budget{NothingBecause: "the budget is 0"}, nil, 15, 2, "duration  not known: the budget is 0\n"},
		{"nobody answers", replay.Budget{}, errors.New("out\nof order"), 5, 0, "duration  20s, at 5 calls a second, if all of UPSTREAM_RPS or --max-rps is free\nnote      what the budget has free is not known: out of order\n"},
		{"nobody answers, and nothing is set", replay.Budget{}, errors.New("out"), 0, 0, "duration  not known: what the budget has free is not known: out\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := survey{Survey: replay.Survey{Accounts: 100}, Calls: 100}
			s.reckon(test.budget, test.err, test.rps, test.max)
			var out strings.Builder
			s.print(&out)
			require.Contains(t, out.String(), test.want)
		})
	}
}

func TestAccountsFromInput(t *testing.T) {
	var in contract.ReplayInput
	require.NoError(t, selectAccounts(&in, &replayFlags{accounts: "x", file: "-"}, strings.NewReader("a\r\n\nb b\nx\n")))
	require.Equal(t, []string{"x", "a", "b b"}, in.Accounts)
	require.Error(t, selectAccounts(&in, &replayFlags{file: "/does/not/exist"}, nil))
}

// TestReport: the counts, and the changed accounts by name as far as they are
// named.
func TestReport(t *testing.T) {
	v := replay.View{Status: "completed", StartedAt: time.Unix(0, 0), EndedAt: time.Unix(90, 0),
		ReplayState: contract.ReplayState{ID: "r1", Operator: "ada", Reason: "drill", What: "5 named accounts",
			Progress: contract.ReplayProgress{Complete: true, Counts: contract.ReplayCounts{Synced: 6, Unchanged: 3, Changed: 3, Fresh: 2, Parked: 1},
				Changed: []contract.ReplayChange{
					{Account: "bob", PayloadChange: contract.PayloadChange{Before: "0123456789ab", After: "ba9876543210"}},
					{Account: "gone", PayloadChange: contract.PayloadChange{Before: "0123456789ab"}},
				}}}}
	var out bytes.Buffer
	require.NoError(t, report(&out, v, false))
	require.Equal(t, `replay     r1, 5 named accounts, by ada: drill
status     completed after 1m30s
synced     6
unchanged  3
changed    3
  "bob"   0123456789ab -> ba9876543210
  "gone"  0123456789ab -> none
  and 1 more
  all of them, with the whole hashes: worker audit replay r1
fresh      2
parked     1
invalid    0
`, out.String())
	out.Reset()
	require.NoError(t, report(&out, v, true))
	require.Contains(t, strings.Join(strings.Fields(out.String()), ""), `"changed":[{"account":"bob","before":"0123456789ab","after":"ba9876543210"},{"account":"gone","before":"0123456789ab"}]`)
	v.Progress.Counts, v.Progress.Changed = contract.ReplayCounts{Synced: 1, Unchanged: 1}, nil
	out.Reset()
	require.NoError(t, report(&out, v, false))
	require.Contains(t, out.String(), "changed    0\nfresh      0\n")
	v.Status = "canceled"
	require.ErrorContains(t, report(&out, v, false), "canceled before it was done")
	require.Equal(t, "[###############...............]", bar(0.5))
}
