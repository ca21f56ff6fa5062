package store

import (
	"encoding/json"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Row is what the store knows about an account, without the payload. The zero
// Row stands for none.
type Row struct {
	CalledAt    time.Time // of the call that wrote the row
	Through     []contract.Through
	SyncID      string
	Attempt     int32
	PayloadHash string // "" if deleted
	Deleted     bool
	// Version is that of the response; zero where upstream has none.
	Version contract.Version

	deletedAt time.Time
	syncedAt  time.Time
	exists    bool
}

// Sync is an answered upstream call to be written.
type Sync struct {
	Account string
	// SyncID, Attempt and CalledAt identify the write. Where a failover of Temporal
	// takes a run back, the same attempt may call a second time.
	SyncID  string
	Attempt int32
	// CalledAt is when the call started, in Temporal's clock.
	CalledAt time.Time
	// Payload is JSON in UTF-8; ignored if Deleted.
	Payload []byte
	Deleted bool
	// Covered are the changes that the call covers, Pending those known that it
	// does not.
	Covered, Pending []contract.Range
	UpstreamStatus   int
	UpstreamDuration time.Duration
	ReplayID         string // "" for a live sync
	// Version is that of the response; zero for none.
	Version contract.Version
	// Tries is how many attempts it took, this one included.
	Tries int
}

// Discard is a decision to give up changes, to be put on record.
type Discard struct {
	Account string
	// ID identifies the decision: the same ID is the same decision. At most 64
	// characters.
	ID               string
	Dropped          []contract.Range
	Operator, Reason string
	At               time.Time // in Temporal's clock
	Tries            int       // how many attempts had failed
	ReplayID         string    // replays that were given up, "" for none
}

// rowColumns are the columns of Accounts that make a [Row], in its order.
var rowColumns = []string{"CalledAt", "Sources", "SyncId", "Attempt", "PayloadHash", "DeletedAt", "SyncedAt", "Version"}

// decodeRow reads rowColumns.
func decodeRow(op string, r *spanner.Row) (Row, error) {
	var calledAt, deletedAt, syncedAt spanner.NullTime
	var sources, syncID, hash, version spanner.NullString
	var attempt spanner.NullInt64
	if err := r.Columns(&calledAt, &sources, &syncID, &attempt, &hash, &deletedAt, &syncedAt, &version); err != nil {
		return Row{}, &Error{Op: op, Kind: ErrUnavailable, Reason: "unexpected column types, run worker migrate", Err: err}
	}
	row := Row{
		CalledAt: calledAt.Time, SyncID: syncID.StringVal, Attempt: int32(attempt.Int64), PayloadHash: hash.StringVal,
		Deleted: deletedAt.Valid, deletedAt: deletedAt.Time, syncedAt: syncedAt.Time, exists: true,
	}
	if sources.StringVal != "" {
		if err := json.Unmarshal([]byte(sources.StringVal), &row.Through); err != nil {
			return Row{}, &Error{Op: op, Kind: ErrRefused, Reason: "column Sources does not hold what Quiesce writes there", Err: err}
		}
	}
	if err := row.Version.UnmarshalText([]byte(version.StringVal)); err != nil {
		return Row{}, &Error{Op: op, Kind: ErrRefused, Reason: "column Version does not hold what Quiesce writes there", Err: err}
	}
	return row, nil
}
