package main

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var (
	_ activities.Store = (*table)(nil)
	_ upstream.Fetcher = directory{}
)

// The page shows the program as it is.
func TestThePageShowsThisProgram(t *testing.T) {
	page, err := os.ReadFile("../extending.md")
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.Contains(t, string(page), "```go\n"+string(program)+"```\n")
}

// Another module cannot import internal packages, so the example must not.
func TestOnlyWhatAnotherModuleCanImport(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	require.NoError(t, err)
	for _, i := range file.Imports {
		require.NotContains(t, i.Path.Value, "/internal/")
	}
}

func TestTheUpstreamSaysWhatToThinkOfAnError(t *testing.T) {
	for err, class := range map[error]string{errBusy: contract.ClassThrottled, errors.New("gone away"): contract.ClassTransient} {
		d := directory{get: func(context.Context, string) ([]byte, int64, error) { return nil, 0, fmt.Errorf("get: %w", err) }}
		_, err := d.Fetch(t.Context(), "a")
		var e *upstream.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, class, e.Class)
	}
	response, err := directory{get: dial()}.Fetch(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, response.Deleted)
	response, err = directory{get: func(context.Context, string) ([]byte, int64, error) { return []byte(`{}`), 7, nil }}.Fetch(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "1970-01-01T00:00:00.000000007Z", response.Version.String())
}

func TestTheStoreFences(t *testing.T) {
	kept := &table{rows: map[string]store.Row{}, log: map[string]contract.Outcome{}}
	write := func(run string, second int64) contract.Outcome {
		outcome, err := kept.Write(t.Context(), store.Sync{Account: "a", SyncID: run, Attempt: 1, CalledAt: time.Unix(second, 0)})
		require.NoError(t, err)
		return outcome
	}
	require.Equal(t, contract.OutcomeWritten, write("new", 2))
	require.Equal(t, contract.OutcomeFenced, write("old", 1))
	require.Equal(t, contract.OutcomeWritten, write("new", 2), "its own")
	row, err := kept.Read(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "new", row.SyncID)
	require.NoError(t, kept.Discard(t.Context(), store.Discard{Account: "a", ID: strings.Repeat("x", 64)}))
}
