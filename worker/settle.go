package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/service"
	"github.com/quiesce-io/quiesce/worker/settle"
)

// settleConfig are the settings of `settle report`.
type settleConfig struct {
	Common process.Common
	Settle config.Settle
	Store  store.Config
}

func settleCommand() process.Command {
	settings := settleConfig{Common: process.DefaultCommon(""), Settle: config.DefaultSettle(), Store: store.Default()}
	since, asJSON := "24h", false
	return process.Command{
		Name:    "settle report",
		Summary: "Tell from the sync log how long upstream takes, and whether SETTLE_TIME is long enough.",
		Help: "Tells only where bridges have CHANGE_VERSION and workers UPSTREAM_VERSION: without versions nobody can\n" +
			"know. It reads all of the sync log's table.",
		Needs:    "SPANNER_DATABASE, and SETTLE_TIME and MAX_CLOCK_SKEW as bridges have them",
		Examples: []string{"settle report", "settle report --since 168h --json"},
		Settings: []any{&settings},
		Validate: func() error { return errors.Join(settings.Settle.Validate(), settings.Store.Validate()) },
		Flags: func(flags *flag.FlagSet) {
			flags.StringVar(&since, "since", since, "Where to begin: a duration back from now, or an RFC 3339 time.")
			flags.BoolVar(&asJSON, "json", false, "Print JSON.")
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			from, err := instant(since, time.Now())
			if err != nil {
				return process.UsageError{Err: fmt.Errorf("--since: %w", err)}
			}
			s, err := service.ReadStore(ctx, settings.Common, settings.Store)
			if err != nil {
				return err
			}
			defer s.Close()
			report, err := settle.Read(ctx, s.Client(), settings.Store.SyncsTable, from)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(i, report)
			}
			printSettle(i, report, settings.Settle)
			return nil
		},
	}
}

func printSettle(i *process.Invocation, r settle.Report, now config.Settle) {
	line := func(format string, args ...any) { fmt.Fprintf(i.Stdout, format+"\n", args...) }
	line("calls since %s whose answer has a version: %d, of which %d came too early", r.Since.Format(time.RFC3339), r.Calls, r.Early)
	if r.AtMost.Changes == 0 {
		line("no change with a version was covered: nothing is known of upstream's lag. Set CHANGE_VERSION and UPSTREAM_VERSION")
		return
	}
	print := func(what string, p settle.Percentiles) {
		line("%-42s %7d changes   p50 %.1fs   p90 %.1fs   p99 %.1fs   max %.1fs", what, p.Changes, p.P50, p.P90, p.P99, p.Max)
	}
	print("upstream took at most (age when it had them)", r.AtMost)
	if r.MoreThan.Changes > 0 {
		print("and more than (age when it lacked them)", r.MoreThan)
	}
	total := now.Total().Seconds()
	switch {
	case r.Suggested > total:
		line("SETTLE_TIME=%.0fs would have left one change in a thousand too early; it is %s, with MAX_CLOCK_SKEW %s", r.Suggested-now.MaxClockSkew.Seconds(), now.Time, now.MaxClockSkew)
	case r.Suggested > 0:
		line("SETTLE_TIME=%s with MAX_CLOCK_SKEW %s leaves less than one change in a thousand too early; from %.0fs together it would be one", now.Time, now.MaxClockSkew, r.Suggested)
	default:
		line("SETTLE_TIME=%s is long enough. Whether less would do cannot be told: nothing was called for before it was %.1fs old", now.Time, r.Youngest)
	}
}
