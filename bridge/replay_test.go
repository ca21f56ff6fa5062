package main

import (
	"bytes"
	"encoding/json"
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

// TestDryRun of a list needs neither Kafka nor Temporal, and no reason.
func TestDryRun(t *testing.T) {
	stdout, stderr, code := invoke(t, map[string]string{"PIPELINE": "crm", "UPSTREAM_RPS": "2"}, "replay", "--accounts", "a,b,c,a", "--dry-run", "--json")
	require.Equal(t, process.ExitOK, code, stderr)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, map[string]any{"what": "3 named accounts", "changes": 3.0, "accounts": 3.0, "invalid": 0.0, "calls": 3.0, "calls_per_second": 2.0, "duration_seconds": 1.5}, got)

	stdout, _, code = invoke(t, map[string]string{"PIPELINE": "crm", "UPSTREAM_RPS": "2"}, "replay", "--accounts", "a,b,c", "--dry-run", "--max-rps", "0.1")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "duration  30s at least, at 0.1 calls a second")
}

func TestAccountsFromInput(t *testing.T) {
	var in contract.ReplayInput
	require.NoError(t, selectAccounts(&in, &replayFlags{accounts: "x", file: "-"}, strings.NewReader("a\r\n\nb b\nx\n")))
	require.Equal(t, []string{"x", "a", "b b"}, in.Accounts)
	require.Error(t, selectAccounts(&in, &replayFlags{file: "/does/not/exist"}, nil))
}

func TestReport(t *testing.T) {
	v := replay.View{Status: "completed", StartedAt: time.Unix(0, 0), EndedAt: time.Unix(90, 0),
		ReplayState: contract.ReplayState{ID: "r1", Operator: "ada", Reason: "drill", What: "5 named accounts",
			Progress: contract.ReplayProgress{Complete: true, Counts: contract.ReplayCounts{Synced: 4, Unchanged: 3, Changed: 1, Parked: 1}}}}
	var out bytes.Buffer
	require.NoError(t, report(&out, v, false))
	require.Contains(t, out.String(), "completed after 1m30s\nsynced     4\nunchanged  3\nchanged    1\nparked     1\n")
	v.Status = "canceled"
	require.ErrorContains(t, report(&out, v, false), "canceled before it was done")
	require.Equal(t, "[###############...............]", bar(0.5))
}
