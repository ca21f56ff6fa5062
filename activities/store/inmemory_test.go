package store

import (
	"context"
	"testing"

	"cloud.google.com/go/spanner/spannertest"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// The in-memory server is the demo's last resort: one writer at a time works.
func TestInMemoryServer(t *testing.T) {
	server, err := spannertest.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	server.SetLogger(func(string, ...any) {})
	t.Setenv(emulator.HostVariable, server.Addr)
	cfg := Default()
	cfg.Database = "projects/p/instances/i/databases/d"
	s, err := Open(context.Background(), cfg)
	require.NoError(t, err)
	defer s.Close()
	require.ErrorIs(t, s.Check(t.Context()), ErrSchema)
	ran, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Len(t, ran, 2)
	ran, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)
	require.NoError(t, s.Check(t.Context()))

	require.Equal(t, contract.OutcomeWritten, write(t, s, called(2, `{"v":2}`)))
	require.Equal(t, contract.OutcomeUnchanged, write(t, s, called(3, `{"v":2}`)))
	require.Equal(t, contract.OutcomeUnchanged, write(t, s, called(3, `{"v":2}`)), "its own")
	require.Equal(t, contract.OutcomeFenced, write(t, s, called(1, `{"v":1}`)))
	row, err := s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, row.CalledAt.Equal(at(3)))
	require.Equal(t, `{"v":2}`, cell[string](t, s, "Payload"))
}
