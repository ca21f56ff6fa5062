package check

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Row is one row of Accounts.
type Row struct {
	Account string
	// Version is what the payload carries; 0 where it carries none or the
	// account is marked deleted.
	Version  int64
	Deleted  bool
	CalledAt time.Time
	SyncID   string
}

// Sync is one row of AccountSyncs.
type Sync struct {
	Account  string
	SyncID   string
	SyncedAt time.Time
	CalledAt time.Time
	Changes  int64
	// Ranges are the changes that the call covered.
	Ranges  []contract.Range
	Outcome string
}

// ReadRows reads table Accounts.
func ReadRows(ctx context.Context, client *spanner.Client) ([]Row, error) {
	var rows []Row
	read := client.Single().Read(ctx, "Accounts", spanner.AllKeys(), []string{"AccountId", "Payload", "DeletedAt", "CalledAt", "SyncId"})
	err := read.Do(func(r *spanner.Row) error {
		var (
			account           string
			payload, sync     spanner.NullString
			deleted, calledAt spanner.NullTime
		)
		if err := r.Columns(&account, &payload, &deleted, &calledAt, &sync); err != nil {
			return err
		}
		row := Row{Account: account, Deleted: deleted.Valid, CalledAt: calledAt.Time, SyncID: sync.StringVal}
		if payload.Valid && !row.Deleted {
			row.Version = payloadVersion(payload.StringVal)
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read Accounts: %w", err)
	}
	return rows, nil
}

// payloadVersion returns the version in a payload, 0 where there is none: that
// is no version an account ever has.
func payloadVersion(payload string) int64 {
	var body struct {
		Version int64 `json:"version"`
	}
	if json.Unmarshal([]byte(payload), &body) != nil {
		return 0
	}
	return body.Version
}

// ReadSyncs reads table AccountSyncs.
func ReadSyncs(ctx context.Context, client *spanner.Client) ([]Sync, error) {
	var syncs []Sync
	read := client.Single().Read(ctx, "AccountSyncs", spanner.AllKeys(), []string{"AccountId", "SyncId", "SyncedAt", "CalledAt", "Changes", "Sources", "Outcome"})
	err := read.Do(func(r *spanner.Row) error {
		var (
			s        Sync
			calledAt spanner.NullTime
			changes  spanner.NullInt64
			sources  spanner.NullString
			outcome  spanner.NullString
		)
		if err := r.Columns(&s.Account, &s.SyncID, &s.SyncedAt, &calledAt, &changes, &sources, &outcome); err != nil {
			return err
		}
		s.CalledAt, s.Changes, s.Outcome = calledAt.Time, changes.Int64, outcome.StringVal
		if sources.Valid {
			if err := json.Unmarshal([]byte(sources.StringVal), &s.Ranges); err != nil {
				return fmt.Errorf("sources of sync %s of %s: %w", s.SyncID, s.Account, err)
			}
		}
		syncs = append(syncs, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read AccountSyncs: %w", err)
	}
	return syncs, nil
}
