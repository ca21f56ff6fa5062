package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestReplayIsCalledWhateverTheRowSays: with changes that the row covers, and
// with none at all.
func TestReplayIsCalledWhateverTheRowSays(t *testing.T) {
	bubble(t, "covered by the row", func(t *testing.T, f *fixture) {
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server, SyncID: "earlier"}
		in := f.input(f.changed(40*time.Second, 1))
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeSkipped, result.Outcome)
		require.Empty(t, f.calls)
		in.ReplayID = "r1"
		result, err = f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 1)
		require.Equal(t, "r1", f.store.syncs[0].ReplayID)
	})
	bubble(t, "no change at all", func(t *testing.T, f *fixture) {
		_, err := f.run(contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings})
		require.NoError(t, err)
		require.Len(t, f.calls, 1)
		require.Empty(t, f.store.syncs[0].Covered)
	})
	bubble(t, "not before the changes it joins are due", func(t *testing.T, f *fixture) {
		in := f.input(f.changed(0, 1))
		in.ReplayID = "r1"
		_, err := f.run(in)
		require.Equal(t, delay, f.deferral(err))
		require.Empty(t, f.calls)
	})
	bubble(t, "not while the row lies in the future", func(t *testing.T, f *fixture) {
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(time.Minute)}
		_, err := f.run(contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings})
		require.Equal(t, time.Minute, f.deferral(err))
		require.Empty(t, f.calls)
	})
}
