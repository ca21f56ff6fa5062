package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestAnAccountsLife(t *testing.T) {
	s := ready(t, nil)
	row, err := s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, Row{}, row)

	require.Equal(t, contract.OutcomeWritten, write(t, s, called(1, `{"v":1}`)))
	row, err = s.Read(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, row.CalledAt.Equal(at(1)))
	require.Equal(t, "run 1", row.SyncID)
	require.EqualValues(t, 1, row.Attempt)
	require.Equal(t, []contract.Through{{Source: change(0, 0).Source, Position: contract.Position{Offset: 1}}}, row.Through)
	require.Equal(t, Hash([]byte(`{"v":1}`)), row.PayloadHash)
	require.WithinDuration(t, time.Now(), row.syncedAt, time.Minute)

	// Unchanged: Payload is not rewritten, everything else is.
	_, err = s.Client().Apply(t.Context(), []*spanner.Mutation{spanner.Update("Accounts", []string{"AccountId", "Payload"}, []any{"a", "untouched"})})
	require.NoError(t, err)
	again := called(2, `{"v":1}`)
	again.Covered = []contract.Range{change(1, 2)}
	again.Pending = []contract.Range{change(0, 5)}
	require.Equal(t, contract.OutcomeUnchanged, write(t, s, again))
	require.Equal(t, "untouched", cell[string](t, s, "Payload"))
	row, _ = s.Read(t.Context(), "a")
	require.Len(t, row.Through, 2, "positions are merged")
	require.True(t, row.CalledAt.Equal(at(2)))

	gone := called(3, "")
	gone.Deleted, gone.UpstreamStatus = true, 404
	require.Equal(t, contract.OutcomeDeleted, write(t, s, gone))
	gone = called(4, "")
	gone.Deleted = true
	require.Equal(t, contract.OutcomeDeleted, write(t, s, gone))
	require.Equal(t, at(3), cell[time.Time](t, s, "DeletedAt").UTC(), "the first call that found it gone")
	require.False(t, cell[spanner.NullString](t, s, "Payload").Valid)
	row, _ = s.Read(t.Context(), "a")
	require.True(t, row.Deleted)
	require.Empty(t, row.PayloadHash)

	require.Equal(t, contract.OutcomeWritten, write(t, s, called(5, `{"v":1}`)))
	require.False(t, cell[spanner.NullTime](t, s, "DeletedAt").Valid)
	require.Equal(t, `{"v":1}`, cell[string](t, s, "Payload"))

	require.Equal(t, []string{"written", "unchanged", "deleted", "deleted", "written"}, logged(t, s))
}

func TestTheLogSaysWhatACallCovered(t *testing.T) {
	s := ready(t, nil)
	sync := called(9, `{}`)
	sync.Covered = []contract.Range{change(0, 3), change(1, 2)}
	sync.ReplayID = "replay"
	write(t, s, sync)
	var changes, httpStatus, millis, attempt int64
	var sources, outcome, replay string
	var oldest, newest, calledAt, syncedAt time.Time
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement(`SELECT Changes, UpstreamStatus, UpstreamMillis, Attempt, Sources, Outcome, ReplayId,
		OldestChangeAt, NewestChangeAt, CalledAt, SyncedAt FROM AccountSyncs WHERE AccountId = 'a' AND SyncId = 'run 9'`)).Do(func(r *spanner.Row) error {
		return r.Columns(&changes, &httpStatus, &millis, &attempt, &sources, &outcome, &replay, &oldest, &newest, &calledAt, &syncedAt)
	}))
	require.EqualValues(t, []int64{2, 200, 12, 1}, []int64{changes, httpStatus, millis, attempt})
	require.JSONEq(t, `[{"source":{"topic_id":"AQAAAAAAAAAAAAAAAAAAAA","topic":"t","partition":0},"first":{"epoch":0,"offset":3},"last":{"epoch":0,"offset":3},"count":1,"oldest":"2026-11-30T12:00:03Z","newest":"2026-11-30T12:00:03Z"},
		{"source":{"topic_id":"AQAAAAAAAAAAAAAAAAAAAA","topic":"t","partition":1},"first":{"epoch":0,"offset":2},"last":{"epoch":0,"offset":2},"count":1,"oldest":"2026-11-30T12:00:02Z","newest":"2026-11-30T12:00:02Z"}]`, sources)
	require.Equal(t, []string{"written", "replay"}, []string{outcome, replay})
	require.Equal(t, []time.Time{at(2), at(3), at(9)}, []time.Time{oldest.UTC(), newest.UTC(), calledAt.UTC()})
	require.Equal(t, cell[time.Time](t, s, "SyncedAt"), syncedAt, "row and log carry one commit timestamp")
}

func TestTheNewerCallWins(t *testing.T) {
	s := ready(t, nil)
	write(t, s, called(10, `{"v":"new"}`))
	require.Equal(t, contract.OutcomeFenced, write(t, s, called(9, `{"v":"old"}`)))
	require.Equal(t, contract.OutcomeFenced, write(t, s, called(9, `{"v":"old"}`)), "repeated, the answer is the same")
	gone := called(8, "")
	gone.Deleted = true
	require.Equal(t, contract.OutcomeFenced, write(t, s, gone))
	require.Equal(t, `{"v":"new"}`, cell[string](t, s, "Payload"))
	row, _ := s.Read(t.Context(), "a")
	require.EqualValues(t, 10, row.Through[0].Position.Offset)
	require.Equal(t, []string{"written", "fenced", "fenced"}, logged(t, s), "each fenced call is logged once")
}

// A write that came through unnoticed and was overtaken is not fenced.
func TestOvertakenWriteKnowsItself(t *testing.T) {
	s := ready(t, nil)
	write(t, s, called(1, `{"v":1}`))
	write(t, s, called(2, `{"v":2}`))
	require.Equal(t, contract.OutcomeWritten, write(t, s, called(1, `{"v":1}`)))
	require.Equal(t, []string{"written", "written"}, logged(t, s))
}

func TestWritersInAnyOrderEndWithTheNewest(t *testing.T) {
	s := ready(t, nil)
	other := reopen(t, s.cfg)
	require.NoError(t, other.Check(t.Context()))
	order := rand.Perm(24)
	var wg sync.WaitGroup
	var failures atomic.Int32
	for w := range 4 {
		writer := []*Store{s, other}[w%2]
		wg.Go(func() {
			for i := w; i < len(order); i += 4 {
				sync := called(order[i], fmt.Sprintf(`{"v":%d}`, order[i]))
				for {
					if _, err := writer.Write(t.Context(), sync); err == nil {
						break
					} else if failures.Add(1) > 20 {
						t.Error(err)
						return
					}
				}
				// No older payload ever replaces a newer one: what a writer reads
				// after its own write is that write or a newer one.
				if row, err := writer.Read(t.Context(), "a"); err != nil || row.CalledAt.Before(sync.CalledAt) {
					t.Errorf("call %d: row went back to %v (%v)", order[i], row.CalledAt, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, `{"v":23}`, cell[string](t, s, "Payload"))
	require.Len(t, logged(t, s), 24)
}

func TestUnknownCommitOutcomeIsRecognised(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unavailable, codes.Internal} {
		t.Run(code.String(), func(t *testing.T) {
			var hits atomic.Int32
			s := ready(t, nil, onCommit(func(commit func() error) error {
				err := commit()
				if err == nil && hits.Add(1) == 2 {
					return status.Error(code, "the answer was lost")
				}
				return err
			}))
			write(t, s, called(1, `{"v":1}`))
			sync := called(2, `{"v":1}`)
			outcome, err := s.Write(t.Context(), sync)
			if err != nil { // the client itself repeats some commits
				require.ErrorIs(t, err, ErrUnavailable)
				outcome, err = s.Write(t.Context(), sync)
			}
			require.NoError(t, err)
			require.GreaterOrEqual(t, hits.Load(), int32(2))
			require.Equal(t, contract.OutcomeUnchanged, outcome, "what it was, not what it would be now")
			require.Equal(t, []string{"written", "unchanged"}, logged(t, s))
		})
	}
}

func TestAbortedRunsAgain(t *testing.T) {
	var commits atomic.Int32
	s := ready(t, nil, onCommit(func(commit func() error) error {
		if commits.Add(1) <= 2 {
			return status.Error(codes.Aborted, "again")
		}
		return commit()
	}))
	require.Equal(t, contract.OutcomeWritten, write(t, s, called(1, `{}`)))
	require.EqualValues(t, 3, commits.Load())
	require.Equal(t, []string{"written"}, logged(t, s))
}

func TestWhatIsUnavailableAndWhatIsRefused(t *testing.T) {
	answer := codes.OK
	var text string
	s := ready(t, nil, onCommit(func(commit func() error) error {
		if answer != codes.OK {
			return status.Error(answer, text)
		}
		return commit()
	}))
	text = "for key a"
	for code, kind := range map[codes.Code]error{
		codes.Unavailable: ErrUnavailable, codes.DeadlineExceeded: ErrUnavailable, codes.PermissionDenied: ErrUnavailable,
		codes.Unauthenticated: ErrUnavailable, codes.NotFound: ErrUnavailable, codes.ResourceExhausted: ErrUnavailable,
		codes.Aborted: ErrUnavailable, codes.InvalidArgument: ErrRefused, codes.OutOfRange: ErrRefused, codes.FailedPrecondition: ErrRefused,
	} {
		answer = code
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := s.Write(ctx, called(1, `{}`))
		cancel()
		require.ErrorIs(t, err, kind, code)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotContains(t, e.Reason, "key a", "no account data in reasons")
	}
	answer = codes.OK
	require.Empty(t, logged(t, s))

	for name, edit := range map[string]func(*Sync){
		"not JSON":        func(s *Sync) { s.Payload = []byte("<html>") },
		"not UTF-8":       func(s *Sync) { s.Payload = []byte("\"\xff\"") },
		"nothing":         func(s *Sync) { s.Payload = nil },
		"key beyond 512":  func(s *Sync) { s.Account = strings.Repeat("k", 513) },
		"beyond a cell":   func(s *Sync) { s.Payload = []byte(`"` + strings.Repeat("x", 3<<20) + `"`) },
		"year beyond its": func(s *Sync) { s.CalledAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		sync := called(1, `{}`)
		edit(&sync)
		_, err := s.Write(t.Context(), sync)
		require.ErrorIs(t, err, ErrRefused, name)
	}
	large := called(1, `"`+strings.Repeat("x", maxCell-1)+`"`)
	_, err := s.Write(t.Context(), large)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "payload has 2621441 characters, more than the 2621440 that fit into a STRING column", e.Reason)
	large.Payload, large.SyncID, large.Account = large.Payload[1:], "fits", "b"
	large.Payload[0] = '"'
	require.Equal(t, contract.OutcomeWritten, write(t, s, large))
	_, err = s.Client().Apply(t.Context(), []*spanner.Mutation{spanner.Delete("AccountSyncs", spanner.AllKeys())})
	require.NoError(t, err)

	_, err = s.Client().Apply(t.Context(), []*spanner.Mutation{spanner.InsertMap("Accounts", map[string]any{"AccountId": "a", "Sources": "by hand"})})
	require.NoError(t, err)
	_, err = s.Write(t.Context(), called(1, `{}`))
	require.ErrorIs(t, err, ErrRefused)
	_, err = s.Read(t.Context(), "a")
	require.ErrorIs(t, err, ErrRefused)
}

func TestAnyKeyIsItself(t *testing.T) {
	s := ready(t, nil)
	keys := []string{"A", "a", "a/b", "..", "\x00", "日本", "'; DROP TABLE Accounts", strings.Repeat("k", 512), strings.Repeat("é", 256)}
	for i, key := range keys {
		sync := called(i+1, fmt.Sprint(i))
		sync.Account = key
		require.Equal(t, contract.OutcomeWritten, write(t, s, sync), "%q", key)
	}
	for i, key := range keys {
		row, err := s.Read(t.Context(), key)
		require.NoError(t, err)
		require.True(t, row.CalledAt.Equal(at(i+1)), "%q", key)
	}
}

// A failover of Temporal took the run back to before its attempt: the same attempt
// calls a second time, and brings something else.
func TestTheSameAttemptMayCallAgain(t *testing.T) {
	s := ready(t, nil)
	first, second := called(1, `{"v":1}`), called(100, `{"v":2}`)
	second.SyncID, second.Attempt = first.SyncID, first.Attempt
	require.Equal(t, contract.OutcomeWritten, write(t, s, first))
	require.Equal(t, contract.OutcomeWritten, write(t, s, second))
	require.Equal(t, `{"v":2}`, cell[string](t, s, "Payload"))
	require.Equal(t, contract.OutcomeWritten, write(t, s, first), "it came through, and is not logged twice")
	between := called(50, `{"v":3}`)
	between.SyncID, between.Attempt = first.SyncID, first.Attempt
	require.Equal(t, contract.OutcomeFenced, write(t, s, between))
	require.Equal(t, []string{"written", "written", "fenced"}, logged(t, s))
}

// Somebody else wrote a newer version after this attempt had read the row.
func TestANewerVersionIsNotOverwritten(t *testing.T) {
	s := ready(t, nil)
	versioned := func(seconds int, id, version, payload string) Sync {
		sync := called(seconds, payload)
		sync.SyncID = id
		require.NoError(t, sync.Version.UnmarshalText([]byte(version)))
		return sync
	}
	require.Equal(t, contract.OutcomeWritten, write(t, s, versioned(1, "run 1", "10", `{"v":10}`)))
	behind := versioned(2, "run 2", "8", `{"v":8}`)
	require.Equal(t, contract.OutcomeFenced, write(t, s, behind))
	require.Equal(t, contract.OutcomeFenced, write(t, s, behind), "told again")
	require.Equal(t, `{"v":10}`, cell[string](t, s, "Payload"))
	require.Equal(t, []string{"written", "fenced"}, logged(t, s))
	require.Equal(t, contract.OutcomeWritten, write(t, s, versioned(3, "run 3", "", `{"v":0}`)), "of none nothing is known")
	require.Equal(t, contract.OutcomeWritten, write(t, s, versioned(4, "run 4", "8", `{"v":8}`)))

	gone := versioned(5, "run 5", "7", ``)
	gone.Deleted = true
	require.Equal(t, contract.OutcomeDeleted, write(t, s, gone))
}
