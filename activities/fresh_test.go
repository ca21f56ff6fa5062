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

func version(t *testing.T, text string) contract.Version {
	v, err := contract.ParseVersion(text)
	require.NoError(t, err)
	return v
}

// answering has upstream answer with these versions, one after the other.
func (f *fixture) answering(versions ...contract.Version) {
	f.fetch = func(context.Context, string) (upstream.Response, error) {
		v := versions[0]
		versions = versions[1:]
		return upstream.Response{Status: 200, Body: []byte(`{}`), Version: v}, nil
	}
}

func TestAnAnswerOlderThanItsChangeIsNotWritten(t *testing.T) {
	bubble(t, "until it is new enough", func(t *testing.T, f *fixture) {
		f.answering(version(t, "8"), version(t, "9"))
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "9")
		in := f.input(change, f.changed(50*time.Second, 2))
		_, err := f.run(in)
		failed := f.failure(err)
		require.Equal(t, contract.ClassUnsettled, failed.Class)
		require.False(t, failed.Charged)
		require.Empty(t, f.store.syncs)
		require.Len(t, f.store.unsettled, 1)
		require.Equal(t, version(t, "8"), f.store.unsettled[0].Version)
		require.Equal(t, []contract.Range{change}, f.store.late)
		require.EqualValues(t, 1, f.metrics.all()["sync.unsettled"])

		in.LastFailure, in.Tries = failed.At, 1
		result, err := f.run(in)
		require.NoError(t, err)
		require.Equal(t, version(t, "9"), result.Version)
		require.Len(t, f.store.syncs, 1)
		require.Equal(t, 2, f.store.syncs[0].Tries, "the log counts attempts")
		require.Equal(t, 2, contract.Count(f.store.syncs[0].Covered))

		f.attempt++
		result, err = f.run(in)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeSkipped, result.Outcome, "now the row covers it")
		require.Equal(t, version(t, "9"), result.Version)
		require.Len(t, f.calls, 2)
	})
	bubble(t, "charged only while others succeed", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{Status: 200, Body: []byte(`{}`), Version: version(t, "1")}, nil
		}
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "2")
		in := f.input(change)
		in.LastFailure = f.server
		f.health.Succeeded("other", f.server.Add(time.Second))
		_, err := f.run(in)
		require.True(t, f.failure(err).Charged)
	})
	bubble(t, "a replica that is behind for everybody is no outage and parks nobody", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{Status: 200, Body: []byte(`{}`), Version: version(t, "1")}, nil
		}
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "2")
		in := f.input(change)
		for i := range 20 {
			in.Account = []string{"a", "b", "c"}[i%3]
			_, err := f.run(in)
			require.False(t, f.failure(err).Charged)
			in.LastFailure = f.server
		}
		require.False(t, f.health.State().Open)
	})
	bubble(t, "what has not settled by time need not be in it", func(t *testing.T, f *fixture) {
		f.answering(version(t, "8"))
		late := f.changed(5*time.Second, 2)
		late.Version = version(t, "9")
		result, err := f.run(f.input(f.changed(time.Minute, 1), late))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Equal(t, []contract.Range{late}, f.store.syncs[0].Pending)
	})
	bubble(t, "nothing is known of versions that do not compare or are missing", func(t *testing.T, f *fixture) {
		for i, c := range [][2]string{{"", "9"}, {"9", ""}, {"2026-11-30T12:00:00Z", "9"}} {
			var change, answer contract.Version
			_ = change.UnmarshalText([]byte(c[0]))
			_ = answer.UnmarshalText([]byte(c[1]))
			f.answering(answer)
			r := f.changed(time.Minute, int64(i))
			r.Version = change
			f.store.rows = map[string]store.Row{}
			result, err := f.run(f.input(r))
			require.NoError(t, err)
			require.Equal(t, contract.OutcomeWritten, result.Outcome)
		}
		require.Zero(t, f.metrics.all()["sync.unsettled"])
	})
	bubble(t, "older than the row, whoever asked", func(t *testing.T, f *fixture) {
		row := store.Row{CalledAt: f.server.Add(-time.Minute), SyncID: "earlier", Version: version(t, "10")}
		f.store.rows["secret-account"] = row
		f.answering(version(t, "8"), version(t, "9"), version(t, "10"))
		in := contract.SyncInput{Account: "secret-account", ReplayID: "r1", Settings: f.input(f.changed(0, 1)).Settings}
		_, err := f.run(in)
		require.Equal(t, "the answer is older than the row", f.failure(err).Reason)
		_, err = f.run(f.input(f.changed(90*time.Second, 1), f.changed(45*time.Second, 2)))
		require.Equal(t, contract.ClassUnsettled, f.failure(err).Class)
		require.Equal(t, row, f.store.rows["secret-account"])
		require.Empty(t, f.store.late, "no change is known to be missing")
		_, err = f.run(in)
		require.NoError(t, err, "as new as the row is new enough")
		require.Len(t, f.store.syncs, 1)
	})
	bubble(t, "an account that is gone has no version", func(t *testing.T, f *fixture) {
		f.fetch = func(context.Context, string) (upstream.Response, error) {
			return upstream.Response{Status: 404, Deleted: true, Version: version(t, "1")}, nil
		}
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "2")
		result, err := f.run(f.input(change))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeDeleted, result.Outcome)
	})
}

// The row's time covers the change, its version says that its payload cannot:
// it was signalled late, after the call that wrote the row.
func TestRowCheckLooksAtVersions(t *testing.T) {
	bubble(t, "older", func(t *testing.T, f *fixture) {
		f.answering(version(t, "9"))
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(-10 * time.Second), SyncID: "earlier", Version: version(t, "8")}
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "9")
		result, err := f.run(f.input(change))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeWritten, result.Outcome)
		require.Len(t, f.calls, 1)
	})
	bubble(t, "new enough", func(t *testing.T, f *fixture) {
		f.store.rows["secret-account"] = store.Row{CalledAt: f.server.Add(-10 * time.Second), SyncID: "earlier", Version: version(t, "9")}
		change := f.changed(time.Minute, 1)
		change.Version = version(t, "9")
		result, err := f.run(f.input(change))
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeSkipped, result.Outcome)
	})
}
