package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// budgetCommands are the commands on the fleet's budget.
func budgetCommands(common *process.Common) []process.Command {
	asJSON := false
	command := func(name, summary, help string, do func(context.Context, *process.Invocation, budget.Temporal) (contract.BudgetStatus, error)) process.Command {
		return process.Command{
			Name: "budget " + name, Summary: summary, Help: help,
			Needs: "PIPELINE, Temporal and a running worker", Examples: []string{"budget " + strings.Replace(name, "RPS", "25", 1)},
			Settings: []any{common},
			Flags:    func(flags *flag.FlagSet) { flags.BoolVar(&asJSON, "json", false, "Print JSON.") },
			Validate: func() error { return common.Validate() },
			Run: func(ctx context.Context, i *process.Invocation) error {
				return withBudget(ctx, *common, func(ctx context.Context, b budget.Temporal) error {
					status, err := do(ctx, i, b)
					if err != nil {
						return budgetError(ctx, common, err)
					}
					if asJSON {
						return printJSON(i, status)
					}
					return printBudget(i, status)
				})
			},
		}
	}
	rps := 0
	set := command("set RPS", "Set how many calls per second the fleet may start; 0 pauses.",
		"Takes effect within "+contract.ShareTTL.String()+", and holds until it is set again or workers start with another UPSTREAM_RPS.",
		func(ctx context.Context, _ *process.Invocation, b budget.Temporal) (contract.BudgetStatus, error) {
			return b.Set(ctx, rps)
		})
	connect := set.Run
	set.Run = func(ctx context.Context, i *process.Invocation) (err error) {
		if rps, err = rate(i.Args[0]); err != nil {
			return err // before anybody is called
		}
		return connect(ctx, i)
	}
	return []process.Command{
		command("show", "Show the budget, who has how much of it, and whether upstream is out.",
			"LEASE is what is kept for a worker: its share, or more while it has not confirmed a smaller one.",
			func(ctx context.Context, _ *process.Invocation, b budget.Temporal) (contract.BudgetStatus, error) {
				return b.Status(ctx)
			}),
		set,
	}
}

// rate parses a number of calls per second.
func rate(text string) (int, error) {
	rps, err := strconv.Atoi(text)
	if err != nil || rps < 0 || (budget.Config{UpstreamRPS: rps}).Validate() != nil {
		return 0, process.UsageError{Err: fmt.Errorf("RPS=%s: must be a whole number of calls per second, up to %d; 0 pauses", text, budget.MaxRPS)}
	}
	return rps, nil
}

func withBudget(ctx context.Context, common process.Common, f func(context.Context, budget.Temporal) error) error {
	ctx, cancel := context.WithTimeout(ctx, common.StartTimeout)
	defer cancel()
	return common.WithTemporal(ctx, func(temporal client.Client, _ client.Options) error {
		return f(ctx, budget.Temporal{Client: temporal, Pipeline: common.Pipeline, TaskQueue: common.Queue()})
	})
}

func budgetError(ctx context.Context, common *process.Common, err error) error {
	var missing *serviceerror.NotFound
	switch {
	case errors.As(err, &missing):
		return fmt.Errorf("pipeline %s has no budget yet: no worker of it ever ran (%w)", common.Pipeline, err)
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within START_TIMEOUT=%s: it takes a running worker of pipeline %s to answer (%w)", common.StartTimeout, common.Pipeline, err)
	}
	return err
}

func printBudget(i *process.Invocation, s contract.BudgetStatus) error {
	origin := "UPSTREAM_RPS"
	if s.Set {
		origin = fmt.Sprintf("set by an operator; UPSTREAM_RPS is %d", s.Configured)
	}
	fmt.Fprintf(i.Stdout, "budget   %d calls a second (%s)\nlimit    %d%s\nleased   %d\nbreaker  %s\n\n",
		s.Budget, origin, s.Limit, whyLess(s), s.Leased, breakerText(s))
	w := tabwriter.NewWriter(i.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKER\tSHARE\tLEASE\tDEMAND\tSEEN\tEXPIRES")
	for _, worker := range s.Workers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s ago\tin %s\n", worker.Worker, worker.Granted, worker.Lease, worker.Demand,
			s.At.Sub(worker.SeenAt).Round(100*time.Millisecond), worker.Expires.Sub(s.At).Round(100*time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, worker := range s.Workers {
		if worker.Out != nil {
			fmt.Fprintf(i.Stdout, "\nupstream is out for %s, for %s: %s\n", worker.Worker, s.At.Sub(worker.Out.Since).Round(time.Second), worker.Out.Cause)
		}
	}
	return nil
}

// whyLess says why the limit is not the budget.
func whyLess(s contract.BudgetStatus) string {
	switch {
	case s.Limit == s.Budget:
		return ""
	case !s.WaitsUntil.IsZero():
		return ": has just started, grants nothing until " + s.WaitsUntil.Format(time.RFC3339)
	case s.Breaker.Open:
		return ": probes only"
	case !s.PausedUntil.IsZero():
		return ": upstream wants no calls until " + s.PausedUntil.Format(time.RFC3339)
	}
	return ": upstream asked for fewer calls"
}

func breakerText(s contract.BudgetStatus) string {
	if !s.Breaker.Open {
		return "closed"
	}
	return fmt.Sprintf("open for %s: %s", s.At.Sub(s.Breaker.Since).Round(time.Second), s.Breaker.Cause)
}
