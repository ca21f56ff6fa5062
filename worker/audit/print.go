package audit

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes the timeline for people, one line an entry.
func (t Timeline) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "account   %q\nworkflow  %s\n", t.Account, t.WorkflowID)
	if t.Record != nil {
		fmt.Fprintf(&b, "record    %s of %s: %s\n", t.Record, instant(t.Record.Time), t.Verdict)
	}
	if len(t.Entries) == 0 {
		fmt.Fprintln(&b, "nothing is known of it in this window")
	}
	for _, e := range t.Entries {
		fmt.Fprintf(&b, "%s  %-8s  %-9s  ", e.At.UTC().Format("2006-01-02T15:04:05.000Z"), e.From, e.What)
		if e.Run != "" {
			fmt.Fprintf(&b, "%s  ", e.Run[:min(8, len(e.Run))])
		}
		b.WriteString(e.Text)
		if e.By != "" {
			fmt.Fprintf(&b, " (by %s)", e.By)
		}
		if e.Committed != nil {
			b.WriteString(map[bool]string{true: " [committed]", false: " [not committed]"}[*e.Committed])
		}
		b.WriteByte('\n')
	}
	for _, missing := range t.Missing {
		fmt.Fprintf(&b, "not known: %s\n", missing)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	c := r.Counts
	fmt.Fprintf(&b, "window      %s to %s\n", r.Window.Since.Format(time.RFC3339), r.Window.Until.Format(time.RFC3339))
	fmt.Fprintf(&b, "syncs       %d of %d accounts, covering %d changes, %d for replays\n", c.Syncs, c.Accounts, c.Changes, c.Replays)
	fmt.Fprintf(&b, "discards    %d\n", c.Discards)
	fmt.Fprintf(&b, "calls       at most %d within a second\n", c.BusiestCalls)
	fmt.Fprintf(&b, "records     %d committed; %d of them pending in open runs, %d dead letters\n", c.Records, c.Pending, c.DeadLetters)
	fmt.Fprintf(&b, "parked runs %d ended from outside\n", c.BrokenRuns)
	for _, u := range r.Unchecked {
		fmt.Fprintf(&b, "not checked %s\n", u)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION   %s", v.Kind)
		if !v.At.IsZero() {
			fmt.Fprintf(&b, "  %s", instant(v.At))
		}
		if v.Account != "" {
			fmt.Fprintf(&b, "  account %q", v.Account)
		}
		if v.Run != "" {
			fmt.Fprintf(&b, "  run %s", v.Run)
		}
		fmt.Fprintf(&b, "  %s\n", v.Text)
	}
	fmt.Fprintf(&b, "%d violations\n", len(r.Violations))
	_, err := io.WriteString(w, b.String())
	return err
}
