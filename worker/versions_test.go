package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/deployment"
)

func TestVersionsUsage(t *testing.T) {
	environment := map[string]string{"PIPELINE": "crm"}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"versions", "use"}, "VERSION is missing"},
		{[]string{"versions", "use", "v1", "--ramp", "101"}, "--ramp 101: must be from 0 to 100"},
		{[]string{"versions", "use", "v1", "--ramp", "-1"}, "--ramp -1: must be from 0 to 100"},
	} {
		_, stderr, code := invoke(t, environment, test.args...)
		require.Equal(t, process.ExitUsage, code, test.args)
		require.Contains(t, stderr, test.want)
	}
}

func TestPrintVersions(t *testing.T) {
	var out, errs bytes.Buffer
	i := &process.Invocation{Stdout: &out, Stderr: &errs}
	since := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	versions := []deployment.Version{{Version: "v3", Since: since}, {Version: "v2", Since: since, RampPercent: 12.5}, {Version: "v1", Since: since, Current: true}}
	require.NoError(t, printVersions(i, versions))
	require.Equal(t, `VERSION  SINCE                 WORK
v3       2026-11-30T09:00:00Z  none
v2       2026-11-30T09:00:00Z  12.5%
v1       2026-11-30T09:00:00Z  current
`, out.String())
	require.Empty(t, errs.String())
	require.NoError(t, printVersions(i, versions[:2]))
	require.Contains(t, errs.String(), "no version is current: unversioned workers do the work")
}
