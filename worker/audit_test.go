package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

func TestAuditUsage(t *testing.T) {
	environment := map[string]string{"PIPELINE": "crm", "SPANNER_DATABASE": "projects/p/instances/i/databases/d"}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"audit"}, "either ACCOUNT or --record"},
		{[]string{"audit", "a", "--record", "t/0/1"}, "either ACCOUNT or --record"},
		{[]string{"audit", "a", "b"}, `unexpected argument "b"`},
		{[]string{"audit", "a", "--since", "yesterday"}, `--since: "yesterday" is neither a duration`},
		{[]string{"audit", "verify", "--since", "1h", "--until", "2h"}, "is not before --until"},
		{[]string{"audit", "verify", "--call-jitter", "1s"}, "--call-jitter 1s"},
		{[]string{"audit", "verify", "--kafka-brokers", "localhost"}, "KAFKA_BROKERS=localhost"},
		{[]string{"audit", "export", "--format", "xml"}, `--format "xml"`},
	} {
		_, stderr, code := invoke(t, environment, test.args...)
		require.Equal(t, process.ExitUsage, code, test.args)
		require.Contains(t, stderr, test.want)
	}
}

func TestSpan(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	w, err := (&span{fallback: 24 * time.Hour}).window(now)
	require.NoError(t, err)
	require.Equal(t, now.Add(-24*time.Hour), w.Since)
	require.True(t, w.Contains(now))
	w, err = (&span{since: "90m", until: "2026-11-30T12:30:00+01:00"}).window(now)
	require.NoError(t, err)
	require.Equal(t, now.Add(-90*time.Minute), w.Since)
	require.Equal(t, now.Add(-30*time.Minute), w.Until)
}
