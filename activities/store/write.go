package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// maxCell is how many characters a STRING(MAX) column holds.
const maxCell = 2_621_440

// Write writes an answered call: the row, unless a newer call has written it or
// its version is newer, and one row of the sync log. Both carry the commit
// timestamp. It can be repeated with the same Sync until the outcome is known: a
// commit that came through is recognised. It retries what may pass until ctx
// ends, so give it a deadline.
//
// The outcome is written, unchanged, deleted or fenced. Errors are [*Error].
func (s *Store) Write(ctx context.Context, sync Sync) (contract.Outcome, error) {
	const op = "write row"
	columns := s.columns.Load()
	if columns == nil {
		return "", &Error{Op: op, Kind: ErrUnavailable, Reason: "the schema has not been checked"}
	}
	var payload []byte
	if !sync.Deleted {
		payload = sync.Payload
		if !utf8.Valid(payload) || !json.Valid(payload) {
			return "", refused(op, "payload is not JSON in UTF-8")
		}
		if n := utf8.RuneCount(payload); n > maxCell {
			return "", refused(op, fmt.Sprintf("payload has %d characters, more than the %d that fit into a STRING column", n, maxCell))
		}
	}
	mapped, err := values(*columns, payload)
	if err != nil {
		return "", err
	}
	var outcome contract.Outcome
	// The closure runs again when Spanner aborts it. It reads, decides and
	// buffers; all it leaves behind is the outcome of its last run.
	err = s.transact(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		var mutations []*spanner.Mutation
		var err error
		outcome, mutations, err = s.decide(ctx, tx, sync, payload, *columns, mapped)
		if err != nil {
			return err
		}
		return tx.BufferWrite(mutations)
	})
	if err != nil {
		return "", classify(op, err)
	}
	return outcome, nil
}

// decide reads the row and says what becomes of it.
func (s *Store) decide(ctx context.Context, tx *spanner.ReadWriteTransaction, sync Sync, payload []byte, columns []column, mapped []any) (contract.Outcome, []*spanner.Mutation, error) {
	row, err := s.readRow(ctx, tx, sync.Account)
	if err != nil {
		return "", nil, err
	}
	switch {
	case row.exists && row.SyncID == sync.SyncID && row.Attempt == sync.Attempt && row.CalledAt.Equal(sync.CalledAt):
		outcome, err := s.ownOutcome(ctx, tx, sync, row)
		return outcome, nil, err
	case row.CalledAt.After(sync.CalledAt), !sync.Deleted && sync.Version.OlderThan(row.Version):
		outcome, logged, err := s.overtakenOutcome(ctx, tx, sync)
		if err != nil || logged {
			return outcome, nil, err
		}
		// It covers nothing, but it was a call: the log says where it went.
		sync.Covered = nil
		return contract.OutcomeFenced, []*spanner.Mutation{s.logRow(sync, contract.OutcomeFenced, Hash(payload))}, nil
	}

	outcome := contract.OutcomeWritten
	through, err := json.Marshal(contract.Advance(row.Through, sync.Covered, sync.Pending))
	if err != nil {
		return "", nil, refused("write row", "positions cannot be encoded")
	}
	fields := map[string]any{
		"AccountId": sync.Account, "Sources": string(through), "CalledAt": sync.CalledAt,
		"SyncId": sync.SyncID, "Attempt": int64(sync.Attempt), "SyncedAt": spanner.CommitTimestamp,
		"DeletedAt": spanner.NullTime{}, "Version": optional(sync.Version.String()),
	}
	for i, c := range columns {
		fields[c.name] = mapped[i]
	}
	switch {
	case sync.Deleted:
		outcome = contract.OutcomeDeleted
		fields["Payload"], fields["PayloadHash"] = spanner.NullString{}, spanner.NullString{}
		fields["DeletedAt"] = sync.CalledAt
		if row.Deleted {
			fields["DeletedAt"] = row.deletedAt // the first call that found it gone
		}
	case row.PayloadHash == Hash(payload) && !row.Deleted:
		outcome = contract.OutcomeUnchanged // Payload stays as it is
	default:
		fields["Payload"], fields["PayloadHash"] = string(payload), Hash(payload)
	}
	return outcome, []*spanner.Mutation{
		spanner.InsertOrUpdateMap(s.cfg.AccountsTable, fields),
		s.logRow(sync, outcome, Hash(payload)),
	}, nil
}

// ownOutcome returns what the commit that the row comes from had decided.
func (s *Store) ownOutcome(ctx context.Context, tx *spanner.ReadWriteTransaction, sync Sync, row Row) (contract.Outcome, error) {
	r, err := tx.ReadRow(ctx, s.cfg.SyncsTable, spanner.Key{sync.Account, row.syncedAt, sync.SyncID}, []string{"Outcome"})
	var outcome string
	switch {
	case err == nil && r.Column(0, &outcome) == nil:
		return contract.Outcome(outcome), nil
	case err != nil && spanner.ErrCode(err) != codes.NotFound:
		return "", err
	case row.Deleted: // somebody removed the log row
		return contract.OutcomeDeleted, nil
	}
	return contract.OutcomeWritten, nil
}

// overtaken bounds how far the clocks of Temporal and Spanner may differ for
// overtakenOutcome to find a log row.
const overtaken = time.Hour

// overtakenOutcome looks whether this very write came through already and was
// then overtaken by a newer one: its answer was lost, and in the meantime
// somebody else wrote. It must not be told that it was fenced, nor be logged
// twice.
func (s *Store) overtakenOutcome(ctx context.Context, tx *spanner.ReadWriteTransaction, sync Sync) (outcome contract.Outcome, logged bool, err error) {
	statement := spanner.NewStatement("SELECT Outcome FROM `" + s.cfg.SyncsTable + "`" +
		" WHERE AccountId = @account AND SyncedAt >= @since AND SyncId = @sync AND Attempt = @attempt AND CalledAt = @called LIMIT 1")
	statement.Params = map[string]any{
		"account": sync.Account, "since": sync.CalledAt.Add(-overtaken), "sync": sync.SyncID, "attempt": int64(sync.Attempt), "called": sync.CalledAt,
	}
	err = tx.Query(ctx, statement).Do(func(r *spanner.Row) error {
		var o spanner.NullString
		logged = true
		err := r.Column(0, &o)
		outcome = contract.Outcome(o.StringVal)
		return err
	})
	return outcome, logged, err
}

// logRow returns the row of the sync log.
func (s *Store) logRow(sync Sync, outcome contract.Outcome, payloadHash string) *spanner.Mutation {
	covered := sync.Covered
	if covered == nil {
		covered = []contract.Range{}
	}
	sources, _ := json.Marshal(covered) // numbers, strings and times: it cannot fail
	oldest, newest := span(covered)
	return spanner.InsertMap(s.cfg.SyncsTable, map[string]any{
		"AccountId": sync.Account, "SyncedAt": spanner.CommitTimestamp, "SyncId": sync.SyncID,
		"Changes": int64(contract.Count(covered)), "Sources": string(sources),
		"OldestChangeAt": oldest, "NewestChangeAt": newest, "CalledAt": sync.CalledAt,
		"UpstreamStatus": int64(sync.UpstreamStatus), "UpstreamMillis": sync.UpstreamDuration.Milliseconds(),
		"Attempt": int64(sync.Attempt), "Outcome": string(outcome),
		"PayloadHash": optional(payloadHash), "ReplayId": optional(sync.ReplayID), "Tries": int64(max(sync.Tries, 1)),
		"Version": optional(sync.Version.String()),
	})
}

// span returns the least and the greatest change time; NULL for no changes.
func span(ranges []contract.Range) (oldest, newest spanner.NullTime) {
	for _, r := range ranges {
		if !oldest.Valid || r.Oldest.Before(oldest.Time) {
			oldest = spanner.NullTime{Time: r.Oldest, Valid: true}
		}
		if !newest.Valid || r.Newest.After(newest.Time) {
			newest = spanner.NullTime{Time: r.Newest, Valid: true}
		}
	}
	return oldest, newest
}

func optional(s string) spanner.NullString { return spanner.NullString{StringVal: s, Valid: s != ""} }

// Hash returns the SHA-256 of payload in hex, "" for none.
func Hash(payload []byte) string {
	if payload == nil {
		return ""
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}
