package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	// Budget is what the fleet may call and has use for, now; nil where it could
	// not be asked, for the reason in Note.
	Budget *replay.Budget `json:"budget,omitempty"`
	// CallsPerSecond is what the duration is reckoned with: what is free of the
	// budget, or --max-rps if that is less. 0 where that is not known, or nothing
	// is free; Note says which.
	CallsPerSecond  float64 `json:"calls_per_second,omitempty"`
	DurationSeconds float64 `json:"duration_seconds,omitempty"`
	Note            string  `json:"note,omitempty"`
}

// budgetPatience bounds the question for the budget: the rest of a dry run does
// without.
const budgetPatience = 5 * time.Second

func dryRun(ctx context.Context, i *process.Invocation, kafka *replay.Kafka, in contract.ReplayInput, settings *replayConfig, f *replayFlags) error {
	found, err := kafka.Survey(ctx, in)
	if err != nil {
		return err
	}
	s := survey{Survey: found, What: in.What, Calls: found.Accounts}
	budget, err := askBudget(ctx, settings.Common)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.reckon(budget, err, settings.Budget.UpstreamRPS, f.maxRPS)
	if f.asJSON {
		encoder := json.NewEncoder(i.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(s)
	}
	s.print(i.Stdout)
	return nil
}

func askBudget(ctx context.Context, common process.Common) (budget replay.Budget, err error) {
	common.StartTimeout = min(common.StartTimeout, budgetPatience)
	ctx, cancel := context.WithTimeout(ctx, common.StartTimeout)
	defer cancel()
	err = withControl(ctx, common, func(c *replay.Control) (err error) {
		budget, err = c.Budget(ctx)
		return err
	})
	return budget, err
}

// reckon sets how long the calls take, given the budget or why it is not known.
func (s *survey) reckon(budget replay.Budget, err error, upstreamRPS int, maxRPS float64) {
	switch {
	case err != nil:
		s.CallsPerSecond = float64(upstreamRPS)
		s.Note = "what the budget has free is not known: " + strings.Join(strings.Fields(err.Error()), " ")
	default:
		s.Budget, s.CallsPerSecond = &budget, float64(budget.Free())
		if budget.Free() == 0 {
			s.Note = budget.WhyNone()
			return
		}
	}
	if maxRPS > 0 && (s.CallsPerSecond == 0 || maxRPS < s.CallsPerSecond) {
		s.CallsPerSecond = maxRPS
	}
	if s.CallsPerSecond > 0 {
		s.DurationSeconds = float64(s.Calls) / s.CallsPerSecond
	}
}

func (s *survey) print(w io.Writer) {
	fmt.Fprintf(w, "what      %s\nchanges   %d\naccounts  %d\ninvalid   %d\ncalls     %d, fewer where live changes join\n", s.What, s.Changes, s.Accounts, s.Invalid, s.Calls)
	if s.CallsPerSecond == 0 {
		fmt.Fprintf(w, "duration  not known: %s\n", s.Note)
		return
	}
	fmt.Fprintf(w, "duration  %s, at %g calls a second", time.Duration(s.DurationSeconds*float64(time.Second)).Round(time.Second), s.CallsPerSecond)
	if s.Budget != nil {
		fmt.Fprintf(w, "; free of the budget now: %d of %d\n", s.Budget.Free(), s.Budget.Limit)
		return
	}
	fmt.Fprintf(w, ", if all of UPSTREAM_RPS or --max-rps is free\nnote      %s\n", s.Note)
}
