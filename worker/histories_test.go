package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

func TestHistoriesFromDirectory(t *testing.T) {
	stdout, stderr, code := invoke(t, nil, "histories", "verify", "--from", "../workflows/testdata/histories")
	require.Equal(t, process.ExitFailed, code)
	require.Contains(t, stdout, "DOES NOT FIT  2026-11-30-93e4594/must-fail-activity-renamed.json (AccountSync, ")
	require.Contains(t, stdout, ", event 7 ActivityTaskScheduled: ")
	require.Contains(t, stderr, "do not fit this build")

	_, stderr, code = invoke(t, nil, "histories", "verify", "--from", t.TempDir())
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "no *.json files")

	_, stderr, code = invoke(t, map[string]string{"PIPELINE": "crm"}, "histories", "verify", "--each", "0")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "--each 0")
}
