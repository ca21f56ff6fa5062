package store

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestDiscardIsOnRecordOnce(t *testing.T) {
	var commits atomic.Int32
	s := ready(t, nil, onCommit(func(commit func() error) error {
		err := commit()
		if err == nil && commits.Add(1) == 2 {
			return status.Error(codes.DeadlineExceeded, "the answer was lost")
		}
		return err
	}))
	write(t, s, called(1, `{"v":1}`))
	d := Discard{
		Account: "a", ID: "run/discard-1", Dropped: []contract.Range{change(0, 7), change(1, 3)},
		Operator: "ada", Reason: "test data", At: time.Now(), Tries: 9,
	}
	for s.Discard(t.Context(), d) != nil { // until the outcome is known
	}
	require.NoError(t, s.Discard(t.Context(), d))
	require.Equal(t, []string{"written", "discarded"}, logged(t, s))

	var changes, tries int64
	var operator, reason, sources string
	var calledAt spanner.NullTime
	var oldest, newest time.Time
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement(`SELECT Changes, Tries, Operator, Reason, Sources, CalledAt, OldestChangeAt, NewestChangeAt
		FROM AccountSyncs WHERE SyncId = 'run/discard-1'`)).Do(func(r *spanner.Row) error {
		return r.Columns(&changes, &tries, &operator, &reason, &sources, &calledAt, &oldest, &newest)
	}))
	require.Equal(t, []int64{2, 9}, []int64{changes, tries})
	require.Equal(t, []string{"ada", "test data"}, []string{operator, reason})
	require.Contains(t, sources, `"offset":7`)
	require.False(t, calledAt.Valid, "nothing was called")
	require.Equal(t, []time.Time{at(3), at(7)}, []time.Time{oldest.UTC(), newest.UTC()})
	require.Equal(t, `{"v":1}`, cell[string](t, s, "Payload"), "the row is as it was")

	d.ID, d.Dropped, d.ReplayID = "run/discard-2", nil, "r1,r2" // nothing but replays
	require.NoError(t, s.Discard(t.Context(), d))
	var replays string
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement(`SELECT Sources, ReplayId FROM AccountSyncs WHERE SyncId = 'run/discard-2'`)).Do(func(r *spanner.Row) error {
		return r.Columns(&sources, &replays)
	}))
	require.Equal(t, []string{"[]", "r1,r2"}, []string{sources, replays})
	require.Equal(t, []string{"written", "discarded", "discarded"}, logged(t, s), "another decision")
	d.Account = string(make([]byte, 600))
	require.True(t, errors.Is(s.Discard(t.Context(), d), ErrRefused))
}

func TestTheRowKnowsItsVersionAndTheLogItsTries(t *testing.T) {
	s := ready(t, nil)
	sync := called(1, `{}`)
	sync.Tries = 4
	require.NoError(t, sync.Version.UnmarshalText([]byte("42")))
	write(t, s, sync)
	row, err := s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, sync.Version, row.Version)
	write(t, s, called(2, `{}`))
	row, err = s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, row.Version.IsZero(), "no longer that of an earlier response")
	var tries []int64
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement("SELECT Tries FROM AccountSyncs ORDER BY SyncedAt")).Do(func(r *spanner.Row) error {
		var n int64
		err := r.Column(0, &n)
		tries = append(tries, n)
		return err
	}))
	require.Equal(t, []int64{4, 1}, tries)
	_, err = s.Client().Apply(t.Context(), []*spanner.Mutation{spanner.Update("Accounts", []string{"AccountId", "Version"}, []any{"a", "by hand"})})
	require.NoError(t, err)
	_, err = s.Read(t.Context(), "a")
	require.ErrorIs(t, err, ErrRefused)
}

func TestUnsettledIsOnRecordAndNothingElse(t *testing.T) {
	s := ready(t, nil)
	write(t, s, called(1, `{"v":1}`))
	before, err := s.Read(t.Context(), "a")
	require.NoError(t, err)
	sync := called(30, `{"v":2}`)
	sync.Tries = 2
	require.NoError(t, sync.Version.UnmarshalText([]byte("7")))
	for range 2 {
		require.NoError(t, s.Unsettled(t.Context(), sync, []contract.Range{change(0, 9), change(1, 5)}))
	}
	after, err := s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, []string{"written", "unsettled"}, logged(t, s))
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement(`SELECT Changes, Tries, Sources, Version, CalledAt, OldestChangeAt, NewestChangeAt
		FROM AccountSyncs WHERE Outcome = 'unsettled'`)).Do(func(r *spanner.Row) error {
		var changes, tries int64
		var sources, version string
		var calledAt, oldest, newest time.Time
		require.NoError(t, r.Columns(&changes, &tries, &sources, &version, &calledAt, &oldest, &newest))
		require.Equal(t, []int64{0, 2}, []int64{changes, tries})
		require.Equal(t, []string{"[]", "7"}, []string{sources, version}, "it covers nothing")
		require.Equal(t, []time.Time{at(30), at(5), at(9)}, []time.Time{calledAt.UTC(), oldest.UTC(), newest.UTC()})
		return nil
	}))
}
