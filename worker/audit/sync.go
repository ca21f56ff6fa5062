package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Sync is one row of the sync log: one upstream call that was answered, or one
// decision to give changes up, which is no call. Its JSON form is the schema of `worker audit export`; fields are only ever added.
type Sync struct {
	Account  string    `json:"account"`
	SyncedAt time.Time `json:"synced_at"`
	// SyncID is the run ID of the Temporal run that called, Attempt the attempt
	// of its activity.
	SyncID  string `json:"sync_id"`
	Attempt int64  `json:"attempt"`
	// Tries is how many attempts in a row it took; those before it failed.
	Tries int64 `json:"tries,omitempty"`
	// CalledAt is when the call started, in Temporal's clock.
	CalledAt       time.Time `json:"called_at,omitzero"`
	Outcome        string    `json:"outcome"` // written, unchanged, deleted, fenced, unsettled or discarded
	UpstreamStatus int64     `json:"upstream_status"`
	UpstreamMillis int64     `json:"upstream_millis"`
	// Changes is how many changes the call covers, Sources which.
	Changes     int64            `json:"changes"`
	OldestAt    time.Time        `json:"oldest_change_at,omitzero"`
	NewestAt    time.Time        `json:"newest_change_at,omitzero"`
	PayloadHash string           `json:"payload_hash,omitempty"`
	ReplayID    string           `json:"replay_id,omitempty"`
	Operator    string           `json:"operator,omitempty"` // who gave the changes up
	Reason      string           `json:"reason,omitempty"`   // and why
	Version     contract.Version `json:"version,omitzero"`   // of the response, where it has one
	Sources     []contract.Range `json:"sources"`
}

// Row is what the accounts table says of one account.
type Row struct {
	Account     string
	CalledAt    time.Time
	SyncID      string
	Attempt     int64
	Deleted     bool
	Through     []contract.Through
	PayloadHash string // as it stands in the row
	ActualHash  string // of the payload that stands in the row; "" for none
}

// Log reads the tables.
type Log struct {
	Client   *spanner.Client
	Accounts string // name of the accounts table
	Syncs    string // name of the sync log
}

// Window is a span of time, from Since up to and without Until.
type Window struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Contains reports whether t lies in the window.
func (w Window) Contains(t time.Time) bool { return !t.Before(w.Since) && t.Before(w.Until) }

const syncColumns = `AccountId, SyncedAt, SyncId, Attempt, CalledAt, Outcome, UpstreamStatus, UpstreamMillis,
	Changes, OldestChangeAt, NewestChangeAt, PayloadHash, ReplayId, Tries, Operator, Reason, Version, Sources`

// Each calls f for every sync whose row was written in the window, by account
// and then oldest first, until f fails. The rows are of one instant.
func (l *Log) Each(ctx context.Context, w Window, f func(Sync) error) error {
	statement := spanner.NewStatement("SELECT " + syncColumns + " FROM `" + l.Syncs + "`" +
		" WHERE SyncedAt >= @since AND SyncedAt < @until ORDER BY AccountId, SyncedAt, SyncId")
	statement.Params = map[string]any{"since": w.Since, "until": w.Until}
	return l.query(ctx, statement, f)
}

// Of returns the account's syncs in the window, oldest first.
func (l *Log) Of(ctx context.Context, account string, w Window) ([]Sync, error) {
	statement := spanner.NewStatement("SELECT " + syncColumns + " FROM `" + l.Syncs + "`" +
		" WHERE AccountId = @account AND SyncedAt >= @since AND SyncedAt < @until ORDER BY SyncedAt, SyncId")
	statement.Params = map[string]any{"account": account, "since": w.Since, "until": w.Until}
	var syncs []Sync
	err := l.query(ctx, statement, func(s Sync) error { syncs = append(syncs, s); return nil })
	return syncs, err
}

func (l *Log) query(ctx context.Context, statement spanner.Statement, f func(Sync) error) error {
	err := l.Client.Single().Query(ctx, statement).Do(func(r *spanner.Row) error {
		s, err := decodeSync(r)
		if err != nil {
			return err
		}
		return f(s)
	})
	if err != nil {
		return fmt.Errorf("read sync log %s: %w", l.Syncs, err)
	}
	return nil
}

func decodeSync(r *spanner.Row) (Sync, error) {
	var (
		s                                     Sync
		called, oldest, newest                spanner.NullTime
		attempt, status, took, changes, tries spanner.NullInt64
		outcome, hash, replay, sources        spanner.NullString
		operator, reason, version             spanner.NullString
	)
	err := r.Columns(&s.Account, &s.SyncedAt, &s.SyncID, &attempt, &called, &outcome, &status, &took,
		&changes, &oldest, &newest, &hash, &replay, &tries, &operator, &reason, &version, &sources)
	if err != nil {
		return s, err
	}
	s.Attempt, s.UpstreamStatus, s.UpstreamMillis, s.Changes = attempt.Int64, status.Int64, took.Int64, changes.Int64
	s.CalledAt, s.OldestAt, s.NewestAt = called.Time, oldest.Time, newest.Time
	s.Outcome, s.PayloadHash, s.ReplayID = outcome.StringVal, hash.StringVal, replay.StringVal
	s.Tries, s.Operator, s.Reason = tries.Int64, operator.StringVal, reason.StringVal
	if err := s.Version.UnmarshalText([]byte(version.StringVal)); err != nil {
		return s, fmt.Errorf("sync %s of %q: column Version: %w", s.SyncID, s.Account, err)
	}
	s.Sources = []contract.Range{}
	if sources.StringVal != "" {
		if err := json.Unmarshal([]byte(sources.StringVal), &s.Sources); err != nil {
			return s, fmt.Errorf("sync %s of %q: column Sources: %w", s.SyncID, s.Account, err)
		}
	}
	return s, nil
}

// Fenced reports whether the call's answer was not kept, because a newer call had
// written or because it was known to be too old: it covers nothing.
func (s Sync) Fenced() bool {
	return s.Outcome == string(contract.OutcomeFenced) || s.Outcome == string(contract.OutcomeUnsettled)
}

// Discarded reports whether this is an operator's decision and no call.
func (s Sync) Discarded() bool { return s.Outcome == string(contract.OutcomeDiscarded) }

// RunID is the run that the row came from: a discard's ID has it in front.
func (s Sync) RunID() string {
	run, _, _ := strings.Cut(s.SyncID, "/")
	return run
}

// rowsAtOnce bounds one read of rows, whose payloads are read with them.
const rowsAtOnce = 200

// Rows reads the rows of the accounts; those that have none are left out.
func (l *Log) Rows(ctx context.Context, accounts []string) (map[string]Row, error) {
	rows := make(map[string]Row, len(accounts))
	for from := 0; from < len(accounts); from += rowsAtOnce {
		keys := spanner.KeySets()
		for _, account := range accounts[from:min(from+rowsAtOnce, len(accounts))] {
			keys = spanner.KeySets(keys, spanner.Key{account})
		}
		columns := []string{"AccountId", "CalledAt", "SyncId", "Attempt", "DeletedAt", "Sources", "PayloadHash", "Payload"}
		err := l.Client.Single().Read(ctx, l.Accounts, keys, columns).Do(func(r *spanner.Row) error {
			row, err := decodeRow(r)
			rows[row.Account] = row
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", l.Accounts, err)
		}
	}
	return rows, nil
}

// has reports whether the log has the call that the row says it is of.
func (l *Log) has(ctx context.Context, row Row) (logged bool, err error) {
	statement := spanner.NewStatement("SELECT SyncId FROM `" + l.Syncs + "`" +
		" WHERE AccountId = @account AND SyncId = @sync AND Attempt = @attempt AND CalledAt = @called LIMIT 1")
	statement.Params = map[string]any{"account": row.Account, "sync": row.SyncID, "attempt": row.Attempt, "called": row.CalledAt}
	err = l.Client.Single().Query(ctx, statement).Do(func(*spanner.Row) error { logged = true; return nil })
	if err != nil {
		err = fmt.Errorf("look for sync %s of %q: %w", row.SyncID, row.Account, err)
	}
	return logged, err
}

func decodeRow(r *spanner.Row) (Row, error) {
	var (
		row                            Row
		called, deleted                spanner.NullTime
		attempt                        spanner.NullInt64
		sync, sources, hashed, payload spanner.NullString
	)
	if err := r.Columns(&row.Account, &called, &sync, &attempt, &deleted, &sources, &hashed, &payload); err != nil {
		return row, err
	}
	row.CalledAt, row.SyncID, row.Attempt, row.Deleted, row.PayloadHash = called.Time, sync.StringVal, attempt.Int64, deleted.Valid, hashed.StringVal
	if payload.Valid {
		sum := sha256.Sum256([]byte(payload.StringVal))
		row.ActualHash = hex.EncodeToString(sum[:])
	}
	if sources.StringVal != "" {
		if err := json.Unmarshal([]byte(sources.StringVal), &row.Through); err != nil {
			return row, fmt.Errorf("row of %q: column Sources: %w", row.Account, err)
		}
	}
	return row, nil
}
