package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/histories"
	"github.com/quiesce-io/quiesce/workflows"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// sampled are the workflow types whose histories are replayed.
func sampled() []string {
	return []string{contract.AccountSync, contract.ParkedAccountSync, contract.Budget, contract.Replay}
}

func historiesCommand() process.Command {
	common := process.DefaultCommon("")
	asJSON, each, since, from, save := false, 20, "", "", ""
	return process.Command{
		Name:    "histories verify",
		Summary: "Replay recent histories against this build; exit status 1 if one does not fit.",
		Help: `Downloads the newest histories of the pipeline, open and closed, of each workflow
type and build, and replays them. Run it with a new build before it is deployed.
--save keeps what was downloaded, --from replays such a directory instead.`,
		Needs:    "PIPELINE and Temporal; nothing with --from",
		Examples: []string{"histories verify --since 24h", "histories verify --save histories/", "histories verify --from histories/"},
		Settings: []any{&common},
		Flags: func(flags *flag.FlagSet) {
			jsonFlag(&asJSON)(flags)
			flags.IntVar(&each, "each", each, "Histories of each type, build and state.")
			flags.StringVar(&since, "since", "168h", "Closed since then: a duration back from now, or an RFC 3339 time.")
			flags.StringVar(&from, "from", "", "Directory of histories to replay instead; Temporal is not asked.")
			flags.StringVar(&save, "save", "", "Directory to keep what was downloaded in.")
		},
		Validate: func() error {
			if from != "" {
				return nil
			}
			if each < 1 || each > 40 {
				return errors.Join(common.Validate(), fmt.Errorf("--each %d: must be from 1 to 40", each))
			}
			return common.Validate()
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			if from != "" {
				all, err := histories.Load(from)
				if err != nil {
					return err
				}
				if len(all) == 0 {
					return process.UsageError{Err: fmt.Errorf("--from %s: there are no *.json files", from)}
				}
				return verifyHistories(i, all, converter.GetDefaultDataConverter(), asJSON)
			}
			at, err := instant(since, time.Now())
			if err != nil {
				return process.UsageError{Err: fmt.Errorf("--since: %w", err)}
			}
			return common.WithTemporal(ctx, func(temporal client.Client, options client.Options) error {
				all, err := (&histories.Sampler{
					Client: temporal, Namespace: options.Namespace, Pipeline: common.Pipeline, Types: sampled(), Each: each, Since: at,
				}).Sample(ctx)
				if err == nil && save != "" {
					err = histories.Save(save, all)
				}
				if err != nil {
					return err
				}
				return verifyHistories(i, all, options.DataConverter, asJSON)
			})
		},
	}
}

func verifyHistories(i *process.Invocation, all []histories.History, dataConverter converter.DataConverter, asJSON bool) error {
	report, err := histories.Verify(all, dataConverter, func(registry worker.WorkflowRegistry) {
		workflows.Register(registry)
		workflows.RegisterBudget(registry)
	})
	if err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(i, report); err != nil {
			return err
		}
	} else {
		for _, label := range slices.Sorted(maps.Keys(report.Replayed)) {
			fmt.Fprintf(i.Stdout, "%6d  %s\n", report.Replayed[label], label)
		}
		for _, f := range report.Failures {
			fmt.Fprintf(i.Stdout, "DOES NOT FIT  %s (%s, build %q), event %d %s: %s\n", f.History, f.Type, f.Build, f.Event, f.EventType, f.Error)
		}
		if report.LeftOut > 0 {
			fmt.Fprintf(i.Stdout, "%6d  %s made by a reset, left out: their end is no part of a replay\n", report.LeftOut, contract.Budget)
		}
		fmt.Fprintf(i.Stdout, "%d histories, %d do not fit\n", len(all), len(report.Failures))
	}
	if len(report.Failures) > 0 {
		return fmt.Errorf("%d of %d histories do not fit this build: runs in flight would break", len(report.Failures), len(all))
	}
	return nil
}
