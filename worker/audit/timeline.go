package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Where an entry comes from.
const (
	FromSyncLog  = "sync-log"
	FromTemporal = "temporal"
	FromKafka    = "kafka"
)

// Entry is one thing that happened. Its JSON form is stable; fields are only
// ever added.
type Entry struct {
	At   time.Time `json:"at"`
	From string    `json:"from"`
	// What is one of: change, started, signalled, replay, retry, scheduled,
	// deferred, attempt, result, failed, continued, completed, ended, waiting,
	// synced, discarded.
	What string `json:"what"`
	Run  string `json:"run,omitempty"`
	By   string `json:"by,omitempty"` // identity of the process or person
	Text string `json:"text"`
	// Ranges are the changes that this is about.
	Ranges []contract.Range `json:"ranges,omitempty"`
	// Committed says whether all of Ranges are committed; nil where that is not
	// known.
	Committed *bool `json:"committed,omitempty"`
	Sync      *Sync `json:"sync,omitempty"`

	order int // among entries of one instant
}

// Timeline is all that is known of one account.
type Timeline struct {
	Account    string  `json:"account"`
	WorkflowID string  `json:"workflow_id"`
	Window     Window  `json:"window"`
	Record     *Change `json:"record,omitempty"` // the one that was asked for
	Verdict    string  `json:"verdict,omitempty"`
	Entries    []Entry `json:"entries"`
	// Missing says what cannot be told any more, and why.
	Missing []string `json:"missing,omitempty"`
}

// Auditor has the three sources at hand. Kafka may be nil; the others may not.
type Auditor struct {
	Log   *Log
	Runs  *Runs
	Kafka *Kafka
}

// Timeline merges what the three sources know of the account in the window. A
// record is the change it was asked for, or nil.
func (a *Auditor) Timeline(ctx context.Context, account string, w Window, record *Change) (Timeline, error) {
	t := Timeline{Account: account, WorkflowID: contract.AccountWorkflowID(a.Runs.Pipeline, account), Window: w, Record: record}
	syncs, err := a.Log.Of(ctx, account, w)
	if err != nil {
		return t, err
	}
	logged := make([]string, len(syncs)) // runs that the log names
	for i, s := range syncs {
		logged[i] = s.RunID()
	}
	runs, gone, err := a.Runs.Of(ctx, account, w, logged)
	if err != nil {
		return t, err
	}
	for _, run := range runs {
		entries, err := a.Runs.entries(run)
		if err != nil {
			return t, err
		}
		for _, e := range entries {
			if w.Contains(e.At) {
				t.Entries = append(t.Entries, e)
			}
		}
	}
	for _, id := range gone {
		if slices.Contains(logged, id) {
			t.Missing = append(t.Missing, fmt.Sprintf("run %s: the sync log names it, but Temporal's retention has dropped its history: signals, attempts and waits are not known", id))
		} else {
			t.Missing = append(t.Missing, fmt.Sprintf("run %s: a later run continues it, but Temporal's retention has dropped its history", id))
		}
	}
	hashes := ""
	if len(syncs) > 0 {
		if hashes, _, err = a.Log.before(ctx, syncs[0]); err != nil {
			return t, err
		}
	}
	for i, s := range syncs {
		t.Entries = append(t.Entries, syncEntry(&syncs[i], hashes))
		if !s.Fenced() && !s.Discarded() {
			hashes = s.PayloadHash
		}
	}
	if record != nil {
		t.Entries = append(t.Entries, Entry{At: record.Time, From: FromKafka, What: "change", Text: "record " + record.String()})
	}
	if a.Kafka == nil {
		t.Missing = append(t.Missing, "whether offsets are committed: KAFKA_BROKERS is not set")
	} else if err := a.committed(ctx, &t); err != nil {
		return t, err
	}
	for i := range t.Entries {
		t.Entries[i].order = i
	}
	slices.SortFunc(t.Entries, func(x, y Entry) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.order, y.order)) })
	if record != nil {
		t.Verdict = verdict(*record, syncs, runs, a.Runs)
	}
	return t, nil
}

func syncEntry(s *Sync, before string) Entry {
	if s.Discarded() {
		text := fmt.Sprintf("%d changes given up: %s; no call", s.Changes, s.Reason)
		return Entry{At: s.SyncedAt, From: FromSyncLog, What: "discarded", Run: s.RunID(), By: s.Operator, Text: text, Ranges: s.Sources, Sync: s}
	}
	text := fmt.Sprintf("%s: called at %s, upstream %d in %d ms, covers %d changes, payload %s, was %s",
		s.Outcome, instant(s.CalledAt), s.UpstreamStatus, s.UpstreamMillis, s.Changes, short(s.PayloadHash), short(before))
	if s.ReplayID != "" {
		text += ", for replay " + s.ReplayID
	}
	return Entry{At: s.SyncedAt, From: FromSyncLog, What: "synced", Run: s.SyncID, Text: text, Ranges: s.Sources, Sync: s}
}

// short abbreviates a hash.
func short(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash[:min(12, len(hash))]
}

// committed fills in, for entries that name changes, whether their offsets are
// committed.
func (a *Auditor) committed(ctx context.Context, t *Timeline) error {
	offsets, err := a.Kafka.Committed(ctx)
	if err != nil {
		return err
	}
	for i := range t.Entries {
		e := &t.Entries[i]
		if len(e.Ranges) == 0 {
			continue
		}
		all := !slices.ContainsFunc(e.Ranges, func(r contract.Range) bool {
			return offsets[r.Source.Topic][r.Source.Partition] <= r.Last.Offset
		})
		e.Committed = &all
	}
	return nil
}

// verdict says in one line what became of the record.
func verdict(record Change, syncs []Sync, runs []Run, reader *Runs) string {
	for _, s := range syncs {
		for _, r := range s.Sources {
			if !s.Fenced() && r.Source.Same(record.Source) && r.First.Offset <= record.Position.Offset && record.Position.Offset <= r.Last.Offset {
				if s.Discarded() {
					return fmt.Sprintf("given up by %s at %s: %s", s.Operator, instant(s.SyncedAt), s.Reason)
				}
				return fmt.Sprintf("covered by the call of %s, written %s (%s)", instant(s.CalledAt), instant(s.SyncedAt), s.Outcome)
			}
		}
	}
	for _, run := range slices.Backward(runs) {
		_, took, err := reader.Took(run)
		if err != nil || !slices.ContainsFunc(took, func(r contract.Range) bool {
			return r.Source.Same(record.Source) && r.First.Offset <= record.Position.Offset && record.Position.Offset <= r.Last.Offset
		}) {
			continue
		}
		if run.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return fmt.Sprintf("pending in the open run %s (%s)", run.ID, run.Type)
		}
		return fmt.Sprintf("taken by run %s, which is %s; no call in this window lists it", run.ID, run.Status)
	}
	for _, s := range slices.Backward(syncs) {
		if !s.Fenced() && !s.Discarded() && s.CalledAt.After(record.Time) {
			return fmt.Sprintf("no call lists it and no run that is left took it; the account was last called at %s, %s after the record", instant(s.CalledAt), s.CalledAt.Sub(record.Time).Round(time.Millisecond))
		}
	}
	return "neither a call nor a run that is left knows it: not consumed yet, or before this window"
}
