package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
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
	bubble(t, "of a call since the replay began: it has what it asked for", func(t *testing.T, f *fixture) {
		began := f.server.Add(-time.Minute)
		in := contract.SyncInput{Account: "secret-account", ReplayID: "r1", ReplaySince: began, Settings: f.input(f.changed(0, 1)).Settings}
		f.store.rows["secret-account"] = store.Row{CalledAt: began}
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeSkipped, result.Outcome)
		require.True(t, began.Equal(result.CalledAt))
		require.Empty(t, f.calls, "once is enough, whoever asked")
		require.Nil(t, result.Payload)

		// Changes that the row lacks get their call all the same.
		in.Pending = []contract.Range{f.changed(40*time.Second, 1)}
		result, err = f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 1)

		in.Pending = nil
		f.store.rows["secret-account"] = store.Row{CalledAt: began.Add(-time.Millisecond)}
		result, err = f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 2, "a call from before it began is none of its own")
	})
	bubble(t, "and says what became of the payload", func(t *testing.T, f *fixture) {
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(-time.Hour), PayloadHash: "0123456789abcdef"}
		in := contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings}
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, &contract.PayloadChange{Before: "0123456789ab", After: "44136fa355b3"}, result.Payload, "sha256 of {}")
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{Status: 404, Deleted: true}, nil
		}
		f.store.rows["secret-account"] = store.Row{PayloadHash: "0123456789abcdef"}
		result, err = f.run(in)
		require.NoError(t, err)
		require.Equal(t, &contract.PayloadChange{Before: "0123456789ab"}, result.Payload)
		in = f.input(f.changed(40*time.Second, 1))
		f.store.rows["secret-account"] = store.Row{}
		result, err = f.run(in)
		require.NoError(t, err)
		require.Nil(t, result.Payload, "no replay asked: nothing of it leaves the worker")
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
	bubble(t, "not to be fenced by a row that lies a moment ahead", func(t *testing.T, f *fixture) {
		in := contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings}
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(900 * time.Millisecond)}
		_, err := f.run(in)
		require.Equal(t, 900*time.Millisecond, f.deferral(err))
		require.Empty(t, f.calls)
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(400 * time.Millisecond)}
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Equal(t, f.server.Add(400*time.Millisecond).UTC(), result.CalledAt)
	})
	bubble(t, "not while the row lies in the future", func(t *testing.T, f *fixture) {
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(time.Minute)}
		_, err := f.run(contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings})
		require.Equal(t, time.Minute, f.deferral(err))
		require.Empty(t, f.calls)
	})
}
