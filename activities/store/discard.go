package store

import (
	"context"
	"encoding/json"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Discard puts a decision on record: one row of the sync log, whose outcome is
// discarded. The account's row stays as it is. It can be repeated with the same
// ID until it succeeds. Errors are [*Error].
func (s *Store) Discard(ctx context.Context, d Discard) error {
	const op = "record discard"
	sources, err := json.Marshal(d.Dropped)
	if err != nil {
		return refused(op, "changes cannot be encoded")
	}
	oldest, newest := span(d.Dropped)
	row := spanner.InsertMap(s.cfg.SyncsTable, map[string]any{
		"AccountId": d.Account, "SyncedAt": spanner.CommitTimestamp, "SyncId": d.ID,
		"Changes": int64(contract.Count(d.Dropped)), "Sources": string(sources),
		"OldestChangeAt": oldest, "NewestChangeAt": newest, "Tries": int64(d.Tries),
		"Outcome": string(contract.OutcomeDiscarded), "Operator": d.Operator, "Reason": d.Reason,
	})
	// The commit timestamp is part of the key, so a repetition would not collide
	// with a row that came through unnoticed: it has to look for it.
	written := spanner.NewStatement("SELECT 1 FROM `" + s.cfg.SyncsTable + "`" +
		" WHERE AccountId = @account AND SyncedAt >= @since AND SyncId = @id LIMIT 1")
	written.Params = map[string]any{"account": d.Account, "since": d.At.Add(-overtaken), "id": d.ID}
	err = s.transact(ctx, func(ctx context.Context, tx *spanner.ReadWriteTransaction) error {
		found := false
		err := tx.Query(ctx, written).Do(func(*spanner.Row) error { found = true; return nil })
		if err != nil || found {
			return err
		}
		return tx.BufferWrite([]*spanner.Mutation{row})
	})
	return classify(op, err)
}
