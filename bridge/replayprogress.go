package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/internal/process"
)

// followEvery is how often progress is shown.
const followEvery = 2 * time.Second

// follow shows how the replay gets on until it is over. Interrupting it leaves
// the replay as it is.
func follow(ctx context.Context, i *process.Invocation, c *replay.Control, id string, asJSON bool) error {
	terminal := isTerminal(i.Stderr)
	began, told := time.Now(), ""
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		v, err := c.Show(ctx, id)
		if ctx.Err() != nil {
			fmt.Fprintf(i.Stderr, "\nreplay %s goes on by itself: bridge replay show|pause|cancel %s\n", id, id)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w; the replay goes on by itself: bridge replay show %s", err, id)
		}
		line := progressLine(v, time.Since(began))
		switch {
		case terminal:
			fmt.Fprintf(i.Stderr, "\r\033[K%s %s", bar(v.Fraction()), line)
		case line != told:
			fmt.Fprintln(i.Stderr, line)
		}
		told = line
		if !v.Open() {
			if terminal {
				fmt.Fprintln(i.Stderr)
			}
			return report(i.Stdout, v, asJSON)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func progressLine(v replay.View, took time.Duration) string {
	c := v.Progress.Counts
	line := fmt.Sprintf("%s %3.0f%%  %d accounts: %d unchanged, %d changed, %d fresh, %d parked", statusOf(v), 100*v.Fraction(), c.Accounts(), c.Unchanged, c.Changed, c.Fresh, c.Parked)
	if seconds := took.Seconds(); v.Open() && c.Accounts() > 0 && seconds >= 1 {
		line += fmt.Sprintf(", %.1f/s", float64(c.Accounts())/seconds)
	}
	if v.Waiting != "" {
		line += "; " + v.Waiting
	}
	return line
}

func bar(fraction float64) string {
	const width = 30
	full := min(width, int(fraction*width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// report prints what came of it; one that did not complete is an error.
func report(w io.Writer, v replay.View, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(v); err != nil {
			return err
		}
	} else {
		printReport(w, v)
	}
	if v.Status != "completed" {
		return fmt.Errorf("replay %s was %s before it was done", v.ID, v.Status)
	}
	return nil
}

func printReport(w io.Writer, v replay.View) {
	c := v.Progress.Counts
	fmt.Fprintf(w, "replay     %s, %s, by %s: %s\nstatus     %s after %s\nsynced     %d\nunchanged  %d\nchanged    %d\n",
		v.ID, v.What, v.Operator, v.Reason, v.Status, v.EndedAt.Sub(v.StartedAt).Round(time.Second), c.Synced, c.Unchanged, c.Changed)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, changed := range v.Progress.Changed {
		fmt.Fprintf(table, "  %q\t%s -> %s\n", changed.Account, digits(changed.Before), digits(changed.After))
	}
	_ = table.Flush() // as the rest of what is printed
	if more := c.Changed - len(v.Progress.Changed); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	if c.Changed > 0 {
		fmt.Fprintf(w, "  all of them, with the whole hashes: worker audit replay %s\n", v.ID)
	}
	fmt.Fprintf(w, "fresh      %d\nparked     %d\ninvalid    %d\n", c.Fresh, c.Parked, c.Invalid)
}

// digits is a part of a payload's hash, for people.
func digits(hash string) string {
	if hash == "" {
		return "none"
	}
	return hash
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
