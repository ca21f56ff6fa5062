package store

import (
	"context"
	"encoding/json"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Discard puts a decision on record: one row of the sync log, whose outcome is
// discarded. The account's row stays as it is. It can be repeated with the same
// ID until it succeeds. Errors are [*Error].
func (s *Store) Discard(ctx context.Context, d Discard) error {
	const op = "record discard"
	sources, err := json.Marshal(append([]contract.Range{}, d.Dropped...)) // [], not null
	if err != nil {
		return refused(op, "changes cannot be encoded")
	}
	oldest, newest := span(d.Dropped)
	return s.logOnce(ctx, op, d.Account, d.ID, d.At, spanner.InsertMap(s.cfg.SyncsTable, map[string]any{
		"AccountId": d.Account, "SyncedAt": spanner.CommitTimestamp, "SyncId": d.ID,
		"Changes": int64(contract.Count(d.Dropped)), "Sources": string(sources),
		"OldestChangeAt": oldest, "NewestChangeAt": newest, "Tries": int64(d.Tries),
		"Outcome": string(contract.OutcomeDiscarded), "Operator": d.Operator, "Reason": d.Reason,
		"ReplayId": optional(d.ReplayID),
	}))
}

// Unsettled puts a call on record whose answer is not kept, because it is known
// to lack late: changes that it should have had. It covers nothing; the row shows
// their times, so that the log tells how long upstream took. It can be repeated.
// Errors are [*Error].
func (s *Store) Unsettled(ctx context.Context, sync Sync, late []contract.Range) error {
	oldest, newest := span(late)
	return s.logOnce(ctx, "record call", sync.Account, sync.SyncID, sync.CalledAt, spanner.InsertMap(s.cfg.SyncsTable, map[string]any{
		"AccountId": sync.Account, "SyncedAt": spanner.CommitTimestamp, "SyncId": sync.SyncID,
		"Changes": int64(0), "Sources": "[]", "OldestChangeAt": oldest, "NewestChangeAt": newest, "CalledAt": sync.CalledAt,
		"UpstreamStatus": int64(sync.UpstreamStatus), "UpstreamMillis": sync.UpstreamDuration.Milliseconds(),
		"Attempt": int64(sync.Attempt), "Outcome": string(contract.OutcomeUnsettled), "ReplayId": optional(sync.ReplayID),
		"Tries": int64(max(sync.Tries, 1)), "Version": optional(sync.Version.String()),
	}))
}

// logOnce inserts a row of the sync log, unless that came through before.
func (s *Store) logOnce(ctx context.Context, op, account, id string, at time.Time, row *spanner.Mutation) error {
	// The commit timestamp is part of the key, so a repetition would not collide
	// with a row that came through unnoticed: it has to look for it.
	written := spanner.NewStatement("SELECT 1 FROM `" + s.cfg.SyncsTable + "`" +
		" WHERE AccountId = @account AND SyncedAt >= @since AND SyncId = @id LIMIT 1")
	written.Params = map[string]any{"account": account, "since": at.Add(-overtaken), "id": id}
	err := s.transact(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		found := false
		err := tx.Query(ctx, written).Do(func(*spanner.Row) error { found = true; return nil })
		if err != nil || found {
			return err
		}
		return tx.BufferWrite([]*spanner.Mutation{row})
	})
	return classify(op, err)
}
