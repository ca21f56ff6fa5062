package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// survey is what a dry run prints.
type survey struct {
	replay.Survey
	What  string `json:"what"`
	Calls int    `json:"calls"`
	// CallsPerSecond is what the duration is reckoned with; 0 where nobody said.
	CallsPerSecond  float64 `json:"calls_per_second,omitempty"`
	DurationSeconds float64 `json:"duration_seconds,omitempty"`
}

func printSurvey(ctx context.Context, w io.Writer, kafka *replay.Kafka, in contract.ReplayInput, settings *replayConfig, f *replayFlags) error {
	found, err := kafka.Survey(ctx, in)
	if err != nil {
		return err
	}
	s := survey{Survey: found, What: in.What, Calls: found.Accounts, CallsPerSecond: float64(settings.Budget.UpstreamRPS)}
	if f.maxRPS > 0 && (s.CallsPerSecond == 0 || f.maxRPS < s.CallsPerSecond) {
		s.CallsPerSecond = f.maxRPS
	}
	if s.CallsPerSecond > 0 {
		s.DurationSeconds = float64(s.Calls) / s.CallsPerSecond
	}
	if f.asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s)
	}
	fmt.Fprintf(w, "what      %s\nchanges   %d\naccounts  %d\ninvalid   %d\ncalls     %d, fewer where live changes join\n", s.What, s.Changes, s.Accounts, s.Invalid, s.Calls)
	if s.CallsPerSecond == 0 {
		fmt.Fprintln(w, "duration  not known: set UPSTREAM_RPS or --max-rps")
		return nil
	}
	fmt.Fprintf(w, "duration  %s at least, at %g calls a second; live changes come first\n",
		time.Duration(s.DurationSeconds*float64(time.Second)).Round(time.Second), s.CallsPerSecond)
	return nil
}

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
			return err
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
	line := fmt.Sprintf("%s %3.0f%%  %d accounts: %d unchanged, %d changed, %d parked", statusOf(v), 100*v.Fraction(), c.Accounts(), c.Unchanged, c.Changed, c.Parked)
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
		c := v.Progress.Counts
		fmt.Fprintf(w, "replay     %s, %s, by %s: %s\nstatus     %s after %s\nsynced     %d\nunchanged  %d\nchanged    %d\nparked     %d\ninvalid    %d\n",
			v.ID, v.What, v.Operator, v.Reason, v.Status, v.EndedAt.Sub(v.StartedAt).Round(time.Second), c.Synced, c.Unchanged, c.Changed, c.Parked, c.Invalid)
	}
	if v.Status != "completed" {
		return fmt.Errorf("replay %s was %s before it was done", v.ID, v.Status)
	}
	return nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
