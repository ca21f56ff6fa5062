package process

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite settings.txt")

// TestReferenceOfAllSettings holds the list against the references of both
// binaries.
func TestReferenceOfAllSettings(t *testing.T) {
	var names []string
	for _, binary := range []string{"bridge", "worker"} {
		text, err := os.ReadFile(filepath.Join("..", "..", binary, "testdata", "config.golden"))
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^([A-Z_]+)=`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	want := strings.Join(slices.Compact(names), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("settings.txt", []byte(want), 0o644))
	}
	got, err := os.ReadFile("settings.txt")
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test ./internal/process -run Reference -update")
}

func TestMisspeltVariablesArePointedOut(t *testing.T) {
	var stdout, stderr bytes.Buffer
	command := Command{Name: "run", Run: func(context.Context, *Invocation) error { return nil }}
	environ := []string{"PATH=/bin", "KAFKA_BROKER=secret:9092", "UPSTREAM_URL=x", "SETTLE_TIME=1s"}
	code := runIn(context.Background(), environ, "bridge", []string{"run"}, []Command{command}, func(string) (string, bool) { return "", false }, &stdout, &stderr)
	require.Equal(t, ExitOK, code, "a warning, for who knows whose variable it is")
	require.Equal(t, "bridge run: warning: KAFKA_BROKER is set and means nothing here; did you mean KAFKA_BROKERS?\n", stderr.String())
}
