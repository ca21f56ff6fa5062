package processtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

// Invoke runs a command with the given environment and returns what it printed.
func Invoke(binary string, commands []process.Command, environment map[string]string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = process.Run(context.Background(), binary, args, commands, func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	}, &out, &errs)
	return out.String(), errs.String(), code
}

// RequireReference holds the output of config against its golden file, which is
// the reference of all settings, after rewriting that if update is set.
func RequireReference(t *testing.T, binary string, commands []process.Command, update bool) {
	got, _, _ := Invoke(binary, commands, nil, "config")
	file := filepath.Join("testdata", "config.golden")
	if update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
