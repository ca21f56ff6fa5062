package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

// Mistakes are told before anything is asked or done.
func TestParkedUsage(t *testing.T) {
	t.Setenv("USER", "")
	environment := map[string]string{"PIPELINE": "crm", "TEMPORAL_ADDRESS": "127.0.0.1:1", "START_TIMEOUT": "10ms"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"parked", "show"}, "ACCOUNT is missing"},
		{[]string{"parked", "list", "alice"}, `unexpected argument "alice"`},
		{[]string{"parked", "retry"}, "give one ACCOUNT or --all"},
		{[]string{"parked", "retry", "alice", "--all"}, "give one ACCOUNT or --all"},
		{[]string{"parked", "retry", "alice", "--class=refused"}, "go with --all"},
		{[]string{"parked", "discard", "alice"}, "--reason is required"},
		{[]string{"parked", "discard", "alice", "--reason=x"}, "--operator is required"},
		{[]string{"parked", "discard", "--reason=x", "--operator=ada"}, "give one ACCOUNT or --all"},
	} {
		_, stderr, code := invoke(t, environment, c.args...)
		require.Equal(t, process.ExitUsage, code, c.args)
		require.Contains(t, stderr, c.want, c.args)
	}
	_, _, code := invoke(t, environment, "parked", "discard", "alice", "--reason=x", "--operator=ada")
	require.Equal(t, process.ExitFailed, code, "nothing to complain about but the server")
}
