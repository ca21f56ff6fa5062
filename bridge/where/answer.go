package where

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is what became of a record.
type State string

// States.
const (
	NeverSeen    State = "never seen"    // no bridge has taken it in, or it does not exist
	NoRecord     State = "no record"     // nothing is at that offset
	Filtered     State = "filtered"      // RECORD_FILTER says that it is no change
	Buffered     State = "buffered"      // in a bridge, not durable in Temporal yet
	Signalled    State = "signalled"     // a run has it; no call has covered it
	Parked       State = "parked"        // a run has it whose account is set aside
	Covered      State = "covered"       // done, and not committed yet
	Committed    State = "committed"     // done
	DeadLettered State = "dead-lettered" // in the dead-letter topic
)

// Record names one record.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (r Record) String() string { return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset) }

// Parse reads TOPIC/PARTITION/OFFSET.
func Parse(text string) (Record, error) {
	parts := strings.Split(text, "/") // topic names hold no slash
	if len(parts) == 3 && parts[0] != "" {
		partition, err := strconv.ParseInt(parts[1], 10, 32)
		offset, err2 := strconv.ParseInt(parts[2], 10, 64)
		if err == nil && err2 == nil && partition >= 0 && offset >= 0 {
			return Record{parts[0], int32(partition), offset}, nil
		}
	}
	return Record{}, fmt.Errorf("%q: must be TOPIC/PARTITION/OFFSET, such as orders/3/1841", text)
}

// Answer is what is known of one record.
type Answer struct {
	Record string `json:"record"`
	State  State  `json:"state"`
	// Why says in one line what the state rests on.
	Why     string `json:"why"`
	Account string `json:"account,omitempty"`
	// By says who knew: "bridge", "kafka", "kafka and temporal".
	By string `json:"by"`
	// Committed is the group's committed offset in the partition; -1 if there is
	// none, or it is not known.
	Committed int64 `json:"committed_offset"`
	// Events are what happened, as far as it is still known, oldest first.
	Events []Event `json:"events,omitempty"`
	// More are commands that show more.
	More []string `json:"more,omitempty"`
}

// Event is something that happened to a record.
type Event struct {
	At         time.Time `json:"at,omitzero"`
	What       string    `json:"what"`
	WorkflowID string    `json:"workflow_id,omitempty"`
	RunID      string    `json:"run_id,omitempty"`
	// Link is the run's page, as a path below Temporal's UI.
	Link string `json:"link,omitempty"`
}

// Link returns the path of a run's page below Temporal's UI.
func Link(namespace, workflowID, runID string) string {
	return "/namespaces/" + escape(namespace) + "/workflows/" + escape(workflowID) + "/" + escape(runID) + "/history"
}

// escape is url.PathEscape with the characters too that workflow IDs have and
// some routers take for their own.
func escape(s string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F", ":", "%3A", "@", "%40").Replace(s)
}

// Show adds the command that shows a run.
func (a *Answer) Show(namespace, workflowID, runID string) {
	command := fmt.Sprintf("temporal workflow show --namespace %s --workflow-id %s --run-id %s", namespace, workflowID, runID)
	if !slices.Contains(a.More, command) {
		a.More = append(a.More, command)
	}
}

// Print writes the answer for people.
func (a Answer) Print(w io.Writer) {
	fmt.Fprintf(w, "%s is %s\n  %s\n", a.Record, a.State, a.Why)
	if a.Account != "" {
		fmt.Fprintf(w, "account    %q\n", a.Account)
	}
	if a.Committed >= 0 {
		fmt.Fprintf(w, "committed  offset %d\n", a.Committed)
	}
	for _, e := range a.Events {
		at := "-"
		if !e.At.IsZero() {
			at = e.At.UTC().Format("2006-01-02T15:04:05.000Z")
		}
		fmt.Fprintf(w, "%-24s  %s\n", at, e.What)
		if e.RunID != "" {
			fmt.Fprintf(w, "%24s  run %s of %s\n%24s  %s\n", "", e.RunID, e.WorkflowID, "", e.Link)
		}
	}
	for i, command := range a.More {
		label := "more"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(w, "%-9s  %s\n", label, command)
	}
	fmt.Fprintf(w, "by         %s\n", a.By)
}
