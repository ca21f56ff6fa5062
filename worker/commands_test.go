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
	return processtest.Invoke("worker", commands(), environment, args...)
}

func TestReference(t *testing.T) { processtest.RequireReference(t, "worker", commands(), *update) }

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
