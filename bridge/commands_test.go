package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/process/processtest"
)

var update = flag.Bool("update", false, "rewrite golden files")

func invoke(t *testing.T, environment map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return processtest.Invoke("bridge", commands(), environment, args...)
}

func TestReference(t *testing.T) { processtest.RequireReference(t, "bridge", commands(), *update) }

func TestLeaseOfABatch(t *testing.T) {
	stdout, stderr, code := invoke(t, nil, "lease", "--batch", "500", "--timeout", "2s", "--overhead", "100ms")
	require.Equal(t, process.ExitFailed, code)
	require.Contains(t, stdout, "bound  1050 s = ceil(500 / 1) x (2s + 100ms)")
	require.Contains(t, stdout, "lease  1575 s = bound x 1.5")
	require.Contains(t, stdout, "over   MAX_DETECTION_DELAY 300 s: batch <= 95 would pass")
	require.NotEmpty(t, stderr)

	stdout, _, code = invoke(t, nil, "lease", "--batch", "95", "--timeout", "2s", "--overhead", "100ms", "--json")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, `"passes": true`)
}

func TestLeaseOfNonsense(t *testing.T) {
	_, stderr, code := invoke(t, map[string]string{"EXECUTORS": "0"}, "lease")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "EXECUTORS=0: must be at least 1")
	_, stderr, code = invoke(t, nil, "lease", "--batch", "-3")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "--batch")
}

func TestLeasesInForcePass(t *testing.T) {
	stdout, _, code := invoke(t, nil, "lease")
	require.Equal(t, process.ExitOK, code)
	for _, name := range []string{"hand-over of a full buffer", "attempt", "account", "loop", "committer", "watcher"} {
		require.Contains(t, stdout, name+"\n")
	}
	require.NotContains(t, stdout, "over   MAX")
	require.Contains(t, stdout, "committer\n  lease  31 s = 30s LOOP_LEASE + 1s COMMIT_INTERVAL\n")
	require.Contains(t, stdout, "watcher\n  lease  61 s = 30s LOOP_LEASE + 31s longest look\n")
}

// TestLeaseRefusesWhatRunRefuses: also what every row by itself would let pass.
func TestLeaseRefusesWhatRunRefuses(t *testing.T) {
	environment := map[string]string{"PIPELINE": "crm", "KAFKA_BROKERS": "localhost:9092", "KAFKA_TOPICS": "accounts", "DEAD_LETTER_TOPIC": "dead"}
	for value, want := range map[string]string{
		"300s": "LOOP_LEASE=5m0s: exceeds MAX_DETECTION_DELAY=5m0s less COMMIT_INTERVAL=1s",
		"295s": "LOOP_LEASE=4m55s: exceeds MAX_DETECTION_DELAY=5m0s less the 31s",
		"7s":   "LOOP_LEASE=7s: must be at least 8s, four times SIGNAL_TIMEOUT",
	} {
		environment["LOOP_LEASE"] = value
		_, stderr, code := invoke(t, environment, "run")
		require.Equal(t, process.ExitUsage, code)
		require.Contains(t, stderr, want)
		_, stderr, code = invoke(t, environment, "lease")
		require.Equal(t, process.ExitFailed, code)
		require.Contains(t, stderr, want)
	}
	environment["LOOP_LEASE"] = "295s"
	stdout, _, _ := invoke(t, environment, "lease")
	require.Contains(t, stdout, "over   MAX_DETECTION_DELAY 300 s: lower LOOP_LEASE\n")
}

func TestRunNamesEveryFault(t *testing.T) {
	_, stderr, code := invoke(t, map[string]string{
		"PIPELINE": "Not OK", "SETTLE_DELAY": "5s", "EXECUTORS": "0", "BUFFER_RECORDS": "x", "KAFKA_BROKERS": "localhost:9092",
	}, "run")
	require.Equal(t, process.ExitUsage, code)
	for _, want := range []string{"PIPELINE=Not OK: ", "SETTLE_DELAY=5s: ", "EXECUTORS=0: ", "BUFFER_RECORDS=x: ", "KAFKA_TOPICS: ", "DEAD_LETTER_TOPIC: "} {
		require.Contains(t, stderr, want)
	}
	_, stderr, _ = invoke(t, nil, "where", "t/0/1")
	require.Contains(t, stderr, "PIPELINE")
	require.NotContains(t, stderr, "KAFKA_GROUP", "it defaults to the pipeline's name")
	_, stderr, _ = invoke(t, nil, "run")
	require.NotContains(t, stderr, "KAFKA_GROUP", "it defaults to the pipeline's name")
}

func TestRunRefusesWhatCannotBeDetected(t *testing.T) {
	_, stderr, code := invoke(t, map[string]string{
		"PIPELINE": "crm", "KAFKA_BROKERS": "localhost:9092", "KAFKA_TOPICS": "accounts", "DEAD_LETTER_TOPIC": "dead",
		"EXECUTORS": "8",
	}, "run")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "BUFFER_RECORDS=4000: handing a full buffer over may take 26m15s, longer than MAX_DETECTION_DELAY=5m0s; set it to 760 or less, or raise EXECUTORS")
}

func TestSecretsAreNotPrinted(t *testing.T) {
	stdout, stderr, _ := invoke(t, map[string]string{"KAFKA_SASL_PASSWORD": "hush"}, "config")
	require.Contains(t, stdout, "KAFKA_SASL_PASSWORD=[redacted]")
	require.NotContains(t, stdout+stderr, "hush")
}

func TestExamplesAreAccepted(t *testing.T) { processtest.RequireExamples(t, commands()) }
