package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/process/processtest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// invoke runs a command with the given environment and returns what it printed.
func invoke(t *testing.T, environment map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = process.Run(context.Background(), "worker", args, commands(), func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}, &out, &errs)
	return out.String(), errs.String(), code
}

// TestReference holds the output of config against its golden file, which is the
// reference of all settings.
func TestReference(t *testing.T) {
	got, _, _ := invoke(t, nil, "config")
	file := filepath.Join("testdata", "config.golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestRunNamesEveryFault(t *testing.T) {
	_, stderr, code := invoke(t, map[string]string{"PIPELINE": "crm", "UPSTREAM_URL": "http://localhost/x", "PARK_AFTER": "1"}, "run")
	require.Equal(t, process.ExitUsage, code)
	for _, want := range []string{"UPSTREAM_URL=http://localhost/x: ", "PARK_AFTER=1: ", "UPSTREAM_RPS: is required", "SPANNER_DATABASE: is required"} {
		require.Contains(t, stderr, want)
	}
}

func TestUnknownCommand(t *testing.T) {
	_, stderr, code := invoke(t, nil, "parked", "lits")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, `there is no command "parked lits"`)
}

func TestExamplesAreAccepted(t *testing.T) { processtest.RequireExamples(t, commands()) }
