package audit

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// ReplayedAccount is an account whose payload a replay's call changed.
type ReplayedAccount struct {
	Account  string    `json:"account"`
	SyncedAt time.Time `json:"synced_at"`
	SyncID   string    `json:"sync_id"`
	Outcome  string    `json:"outcome"`
	// Before and After are the payload's hashes; "" for no payload.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// New says that the log has no earlier sync of the account: it was not known,
	// or its retention has dropped that sync.
	New bool `json:"new,omitempty"`
}

// ReplayReport is what the sync log says of a replay.
type ReplayReport struct {
	ID        string            `json:"id"`
	Calls     int               `json:"calls"`
	Accounts  int               `json:"accounts"`
	Unchanged int               `json:"unchanged"`
	NotKept   int               `json:"not_kept"` // fenced, or known to be too old
	Changed   []ReplayedAccount `json:"changed"`
	// MayLack is how many calls for other replays may have served this one too:
	// their rows have no room for an ID more.
	MayLack int `json:"may_lack,omitempty"`
}

// Replay reads what a replay has called in the window, and which payloads that
// changed.
func (l *Log) Replay(ctx context.Context, id string, w Window) (ReplayReport, error) {
	report := ReplayReport{ID: id, Changed: []ReplayedAccount{}}
	statement := spanner.NewStatement("SELECT " + syncColumns + " FROM `" + l.Syncs + "`" +
		" WHERE SyncedAt >= @since AND SyncedAt < @until AND @id IN UNNEST(SPLIT(ReplayId, ',')) ORDER BY AccountId, SyncedAt")
	statement.Params = map[string]any{"since": w.Since, "until": w.Until, "id": id}
	account := ""
	err := l.query(ctx, statement, func(s Sync) error {
		if s.Discarded() {
			return nil
		}
		report.Calls++
		if report.Calls == 1 || s.Account != account {
			report.Accounts++
		}
		account = s.Account
		switch {
		case s.Fenced():
			report.NotKept++
			return nil
		case s.Outcome == string(contract.OutcomeUnchanged):
			report.Unchanged++
			return nil
		}
		before, known, err := l.before(ctx, s)
		if err != nil {
			return err
		}
		if known && before == s.PayloadHash { // it had been gone already
			report.Unchanged++
			return nil
		}
		report.Changed = append(report.Changed, ReplayedAccount{
			Account: s.Account, SyncedAt: s.SyncedAt, SyncID: s.SyncID, Outcome: s.Outcome,
			Before: before, After: s.PayloadHash, New: !known,
		})
		return nil
	})
	if err != nil {
		return report, err
	}
	report.MayLack, err = l.mayLack(ctx, id, w)
	return report, err
}

// mayLack counts the calls in the window whose rows do not name the replay, but
// others in so many characters that it may have been left out.
func (l *Log) mayLack(ctx context.Context, id string, w Window) (n int, err error) {
	statement := spanner.NewStatement("SELECT COUNT(*) FROM `" + l.Syncs + "`" +
		" WHERE SyncedAt >= @since AND SyncedAt < @until AND CHAR_LENGTH(ReplayId) >= @full" +
		" AND @id NOT IN UNNEST(SPLIT(ReplayId, ',')) AND IFNULL(Outcome, '') != @discarded")
	statement.Params = map[string]any{
		"since": w.Since, "until": w.Until, "id": id, "full": int64(contract.ReplayIDsFull), "discarded": string(contract.OutcomeDiscarded),
	}
	err = l.Client.Single().Query(ctx, statement).Do(func(r *spanner.Row) error {
		var count int64
		err := r.Column(0, &count)
		n = int(count)
		return err
	})
	if err != nil {
		err = fmt.Errorf("count rows of %s that may lack replay %s: %w", l.Syncs, id, err)
	}
	return n, err
}

// before returns the hash of the payload that the account had before the sync,
// as far as the log knows.
func (l *Log) before(ctx context.Context, s Sync) (hash string, known bool, err error) {
	statement := spanner.NewStatement("SELECT PayloadHash FROM `" + l.Syncs + "`" +
		" WHERE AccountId = @account AND SyncedAt < @at AND Outcome IN UNNEST(@kept) ORDER BY SyncedAt DESC LIMIT 1")
	statement.Params = map[string]any{"account": s.Account, "at": s.SyncedAt, "kept": []string{
		string(contract.OutcomeWritten), string(contract.OutcomeUnchanged), string(contract.OutcomeDeleted),
	}}
	err = l.Client.Single().Query(ctx, statement).Do(func(r *spanner.Row) error {
		var value spanner.NullString
		known = true
		err := r.Column(0, &value)
		hash = value.StringVal
		return err
	})
	if err != nil {
		err = fmt.Errorf("sync of %q before %s: %w", s.Account, instant(s.SyncedAt), err)
	}
	return hash, known, err
}

// Print writes the report for people.
func (r ReplayReport) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "replay     %s\ncalls      %d of %d accounts\nunchanged  %d\nnot kept   %d\nchanged    %d\n", r.ID, r.Calls, r.Accounts, r.Unchanged, r.NotKept, len(r.Changed))
	whole := func(hash string) string {
		if hash == "" {
			return "none"
		}
		return hash
	}
	for _, c := range r.Changed {
		before := whole(c.Before)
		if c.New {
			before = "not in the log"
		}
		fmt.Fprintf(&b, "  %q  %s  %s  %s -> %s\n", c.Account, instant(c.SyncedAt), c.Outcome, before, whole(c.After))
	}
	if r.MayLack > 0 {
		fmt.Fprintf(&b, "not known  %d calls for other replays may have served this one too: their rows have no room for another ID\n", r.MayLack)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
