package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/settle"
)

func TestSettleReportSaysWhatToDo(t *testing.T) {
	some := settle.Percentiles{Changes: 10, P50: 1, P90: 2, P99: 3, Max: 4}
	for want, r := range map[string]settle.Report{
		"nothing is known of upstream's lag": {Calls: 3},
		"SETTLE_TIME=24s would have left":    {AtMost: some, MoreThan: some, Early: 3, Suggested: 25},
		"from 12s together it would be one":  {AtMost: some, MoreThan: some, Early: 3, Suggested: 12},
		"before it was 21.5s old":            {AtMost: some, Youngest: 21.5},
	} {
		var out bytes.Buffer
		printSettle(&process.Invocation{Stdout: &out}, r, config.DefaultSettle())
		require.Contains(t, out.String(), want)
	}
	_, stderr, code := invoke(t, map[string]string{"SPANNER_DATABASE": "projects/p/instances/i/databases/d"}, "settle", "report", "--since=yesterday")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "yesterday")
}
