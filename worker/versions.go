package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/deployment"
)

// versionsCommands are the commands of a rollout, see deploy/rollout.md.
func versionsCommands() []process.Command {
	common, asJSON := process.DefaultCommon(""), false
	ramp := 100
	with := func(ctx context.Context, f func(context.Context, *deployment.Pipeline) error) error {
		return common.WithTemporal(ctx, func(temporal client.Client, _ client.Options) error {
			ctx, cancel := context.WithTimeout(ctx, common.StartTimeout)
			defer cancel()
			return f(ctx, &deployment.Pipeline{Client: temporal.WorkerDeploymentClient(), Name: common.Pipeline})
		})
	}
	return []process.Command{
		{
			Name: "versions list", Summary: "List the versions of versioned workers, and which one works.",
			Help:  "Workers are versioned where they run with WORKER_VERSIONING=true.",
			Needs: "PIPELINE and Temporal", Examples: []string{"versions list"},
			Settings: []any{&common}, Flags: jsonFlag(&asJSON), Validate: func() error { return common.Validate() },
			Run: func(ctx context.Context, i *process.Invocation) error {
				return with(ctx, func(ctx context.Context, p *deployment.Pipeline) error {
					versions, err := p.List(ctx)
					if err != nil {
						return err
					}
					if asJSON {
						return printJSON(i, versions)
					}
					return printVersions(i, versions)
				})
			},
		},
		{
			Name: "versions use VERSION", Summary: "Give a version of the workers all work, or a part of it.",
			Help:     "Its workers must be running. --ramp gives it a part of the work beside the current version.",
			Needs:    "PIPELINE and Temporal",
			Examples: []string{"versions use v1.3.0 --ramp 10", "versions use v1.3.0"},
			Settings: []any{&common},
			Flags: func(flags *flag.FlagSet) {
				flags.IntVar(&ramp, "ramp", ramp, "Percent of the work that it gets; 100 makes it the current version.")
			},
			Validate: func() error {
				if ramp < 0 || ramp > 100 {
					return errors.Join(common.Validate(), fmt.Errorf("--ramp %d: must be from 0 to 100", ramp))
				}
				return common.Validate()
			},
			Run: func(ctx context.Context, i *process.Invocation) error {
				return with(ctx, func(ctx context.Context, p *deployment.Pipeline) error {
					if ramp < 100 {
						if err := p.Ramp(ctx, i.Args[0], float32(ramp)); err != nil {
							return err
						}
						fmt.Fprintf(i.Stdout, "version %s gets %d%% of the work\n", i.Args[0], ramp)
						return nil
					}
					if err := p.Use(ctx, i.Args[0]); err != nil {
						return err
					}
					fmt.Fprintf(i.Stdout, "version %s is current\n", i.Args[0])
					return nil
				})
			},
		},
	}
}

func printVersions(i *process.Invocation, versions []deployment.Version) error {
	w := tabwriter.NewWriter(i.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tSINCE\tWORK")
	current := false
	for _, v := range versions {
		work := "none"
		switch {
		case v.Current:
			current, work = true, "current"
		case v.RampPercent > 0:
			work = fmt.Sprintf("%g%%", v.RampPercent)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", v.Version, v.Since.Format(time.RFC3339), work)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !current {
		fmt.Fprintln(i.Stderr, "no version is current: unversioned workers do the work; worker versions use VERSION moves it")
	}
	return nil
}
