package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/bridge/where"
)

// whereTimeout bounds the answer to one question.
const whereTimeout = 3 * time.Second

// errNotOurs is about a partition that this bridge does not have.
var errNotOurs = errors.New("this bridge does not have the partition")

// Where returns what this bridge knows of a record. It returns an error where it
// does not have the partition, and where its lanes do not answer in time.
func (b *Bridge) Where(ctx context.Context, r where.Record) (where.Answer, error) {
	for _, a := range b.ledger.Assignments() {
		if s := a.Source(); s.Topic == r.Topic && s.Partition == r.Partition {
			return b.whereIn(ctx, a, r)
		}
	}
	return where.Answer{}, fmt.Errorf("%s/%d: %w", r.Topic, r.Partition, errNotOurs)
}

func (b *Bridge) whereIn(ctx context.Context, a *ledger.Assignment, r where.Record) (where.Answer, error) {
	answer := where.Answer{Record: r.String(), By: "bridge", Committed: a.CommittedOffset()}
	switch a.Lookup(r.Offset) {
	case ledger.Kept:
		answer.State, answer.Why = where.Committed, "its offset is committed"
	case ledger.Passed:
		answer.State, answer.Why = where.Covered, "it and all before it are done; the next commit says so"
	case ledger.Beyond:
		answer.State, answer.Why = where.Covered, "it is done; a commit waits for changes before it"
	case ledger.NoRecord:
		answer.State, answer.Why = where.NoRecord, "compaction has removed it, or the offset belongs to a transaction"
	case ledger.Unseen:
		answer.State, answer.Why = where.NeverSeen, "this bridge has the partition and has not come to it"
		if status, ok := b.partitionStatus(r); ok {
			answer.Why += fmt.Sprintf("; next to commit %d, end %d", status.Watermark, status.EndOffset)
			if status.Stopped != "" {
				answer.Why += "; the partition is stopped: " + status.Stopped
			}
		}
	case ledger.Undone:
		if err := b.whereUndone(ctx, &answer, a, r); err != nil {
			return where.Answer{}, err
		}
	}
	return answer, nil
}

func (b *Bridge) whereUndone(ctx context.Context, answer *where.Answer, a *ledger.Assignment, r where.Record) error {
	place, found, err := b.dispatch.Find(ctx, a.Source(), r.Offset)
	if err != nil {
		return fmt.Errorf("it is not done, and the lanes do not tell where it is: %w", err)
	}
	if !found {
		answer.State, answer.Why = where.Buffered, "it is on its way to a lane, or to the dead-letter topic"
		return nil
	}
	answer.Account = place.Account
	answer.Events = append(answer.Events, where.Event{At: place.Time, What: "change time"})
	if place.RunID == "" {
		answer.State, answer.Why = where.Buffered, "its signal is about to be sent"
		if place.Err != "" {
			answer.Why = "Temporal does not take its signal: " + place.Err
		}
		return nil
	}
	cause, detail := b.explain(ctx, place, time.Now())
	answer.State, answer.Why = where.Signalled, fmt.Sprintf("a run has it; it waits for: %s %s", cause, detail)
	answer.Events = append(answer.Events, where.Event{
		At: place.Due, What: "due", WorkflowID: place.WorkflowID, RunID: place.RunID,
		Link: where.Link(b.deps.Namespace, place.WorkflowID, place.RunID),
	})
	answer.Show(b.deps.Namespace, place.WorkflowID, place.RunID)
	return nil
}

// serveWhere answers GET /where?topic=&partition=&offset= with an
// [where.Answer] as JSON; 404 for a partition that this bridge does not have, 503
// where it could not find out in time.
func (b *Bridge) serveWhere(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	r, err := where.Parse(query.Get("topic") + "/" + query.Get("partition") + "/" + query.Get("offset"))
	if err != nil {
		http.Error(w, "want topic, partition and offset: "+err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), whereTimeout)
	defer cancel()
	answer, err := b.Where(ctx, r)
	switch {
	case errors.Is(err, errNotOurs):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}
