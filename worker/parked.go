package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"go.temporal.io/sdk/converter"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/parked"
)

// parkedCommands are the commands on parked accounts.
func parkedCommands(common *process.Common) []process.Command {
	asJSON := false
	jsonFlag := func(flags *flag.FlagSet) { flags.BoolVar(&asJSON, "json", false, "Print JSON.") }
	command := func(name, summary string, do func(context.Context, *process.Invocation, *parked.Accounts) error) process.Command {
		return process.Command{
			Name: "parked " + name, Summary: summary,
			Settings: []any{common}, Flags: jsonFlag,
			Validate: func() error { return common.Validate() },
			Run: func(ctx context.Context, i *process.Invocation) error {
				return withAccounts(ctx, *common, func(ctx context.Context, accounts *parked.Accounts) error {
					return do(ctx, i, accounts)
				})
			},
		}
	}
	return []process.Command{
		command("list", "List the accounts that have been set aside.",
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return listParked(ctx, i, accounts, asJSON)
			}),
		command("show ACCOUNT", "Show why an account has been set aside and when it is tried next.",
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return showParked(ctx, i, accounts, asJSON)
			}),
		command("retry ACCOUNT", "Have a parked account tried at once.",
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				key := i.Args[0]
				if err := accounts.Retry(ctx, key); err != nil {
					return notParked(key, err)
				}
				fmt.Fprintln(i.Stdout, "is being tried:", key)
				return nil
			}),
	}
}

func withAccounts(ctx context.Context, common process.Common, f func(context.Context, *parked.Accounts) error) error {
	ctx, cancel := context.WithTimeout(ctx, common.StartTimeout)
	defer cancel()
	common.Log.Level = "error" // the output is the result
	temporal, options, err := process.DialTemporal(ctx, common.Log.Logger(os.Stderr), telemetry.Discard)
	if err != nil {
		return err
	}
	defer temporal.Close()
	decoder := options.DataConverter
	if decoder == nil {
		decoder = converter.GetDefaultDataConverter()
	}
	return f(ctx, &parked.Accounts{
		Client: temporal, Converter: decoder, Namespace: options.Namespace,
		Pipeline: common.Pipeline, TaskQueue: common.Queue(),
	})
}

func listParked(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, asJSON bool) error {
	all := []parked.Account{}
	if err := accounts.Each(ctx, func(a parked.Account) error { all = append(all, a); return nil }); err != nil {
		return err
	}
	if asJSON {
		return printJSON(i, all)
	}
	w := tabwriter.NewWriter(i.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACCOUNT\tSINCE\tTRIES\tNEXT TRY\tCLASS\tREASON")
	for _, a := range all {
		fmt.Fprintf(w, "%q\t%s\t%d\t%s\t%s\t%s\n", a.Account, a.Failure.Since.Format(time.RFC3339), a.Failure.Tries,
			a.NextTry.Format(time.RFC3339), a.Failure.Class, a.Failure.Reason)
	}
	return w.Flush()
}

func showParked(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, asJSON bool) error {
	key := i.Args[0]
	a, err := accounts.Get(ctx, key)
	if err != nil {
		return notParked(key, err)
	}
	if asJSON {
		return printJSON(i, a)
	}
	fmt.Fprintf(i.Stdout, "account       %q\nworkflow      %s\nrun           %s\nchanges       %d, the first of %s\nfailing since %s, %d tries\nlast failure  %s, %s: %s\nnext try      %s\n",
		a.Account, a.WorkflowID, a.RunID, a.Changes, a.FirstAt.Format(time.RFC3339), a.Failure.Since.Format(time.RFC3339), a.Failure.Tries,
		a.Failure.Last.Format(time.RFC3339), a.Failure.Class, a.Failure.Reason, a.NextTry.Format(time.RFC3339))
	return nil
}

func notParked(key string, err error) error {
	if errors.Is(err, parked.ErrNotParked) {
		return fmt.Errorf("%q: %w; worker parked list shows those that are", key, err)
	}
	return err
}

func printJSON(i *process.Invocation, value any) error {
	encoder := json.NewEncoder(i.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
