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

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/parked"
)

var parkedExamples = map[string][]string{
	"list":              {"parked list", "parked list --class transient --older-than 1h", "parked list --json > shown.json"},
	"show ACCOUNT":      {"parked show account-7"},
	"retry [ACCOUNT]":   {"parked retry account-7", "parked retry --all --class transient --older-than 1h"},
	"discard [ACCOUNT]": {`parked discard account-7 --reason "test data"`, `parked discard --all --from shown.json --reason "closed accounts"`},
}

// parkedCommands are the commands on parked accounts.
func parkedCommands(common *process.Common) []process.Command {
	var flags parkedFlags
	command := func(name, summary, help string, bind func(*flag.FlagSet), do func(context.Context, *process.Invocation, *parked.Accounts) error) process.Command {
		return process.Command{
			Name: "parked " + name, Summary: summary, Help: help,
			Settings: []any{common}, Flags: bind,
			Needs: "PIPELINE and Temporal", Examples: parkedExamples[name],
			Validate: func() error { return errors.Join(common.Validate(), flags.validate()) },
			Run: func(ctx context.Context, i *process.Invocation) error {
				if err := flags.choice(i.Args); err != nil {
					return process.UsageError{Err: err}
				}
				return withAccounts(ctx, *common, func(ctx context.Context, accounts *parked.Accounts) error {
					return do(ctx, i, accounts)
				})
			},
		}
	}
	return []process.Command{
		command("list", "List the accounts that have been set aside.",
			"An account is parked when it keeps failing while others succeed. It retries on its own, from every\n"+
				"10 s to every 10 minutes; its changes stay with its workflow.", flags.filters,
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return listParked(ctx, i, accounts, flags)
			}),
		command("show ACCOUNT", "Show why an account has been set aside and when it is tried next.", "", flags.output,
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return showParked(ctx, i, accounts, flags.json)
			}),
		command("retry [ACCOUNT]", "Have a parked account tried at once, or all that the filters choose.",
			"They queue behind live changes and within the budget.", flags.many,
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return retryParked(ctx, i, accounts, flags)
			}),
		command("discard [ACCOUNT]", "Give up the pending changes of a parked account, or of all that the filters choose.",
			"Drops the changes that it prints, or, with --from, those in the output of `parked list --json`; never\n"+
				"changes that came later. Replays that want a call of the account are given up with them. The sync log records who and why, and the account is released: its next\n"+
				"change is synced as usual.", flags.discard,
			func(ctx context.Context, i *process.Invocation, accounts *parked.Accounts) error {
				return discardParked(ctx, i, accounts, flags)
			}),
	}
}

// parkedFlags are the flags of all these commands; each takes some.
type parkedFlags struct {
	json     bool
	filter   parked.Filter
	all      bool
	operator string
	reason   string
	from     string

	choosing, discarding bool // of the command
}

// choice checks that a command which can work on several accounts is told which.
func (f *parkedFlags) choice(args []string) error {
	switch {
	case !f.choosing:
		return nil
	case f.all == (len(args) == 1):
		return errors.New("give one ACCOUNT or --all")
	case !f.all && f.filter != (parked.Filter{}):
		return errors.New("--class, --reason-contains and --older-than go with --all")
	}
	return nil
}

func (f *parkedFlags) output(flags *flag.FlagSet) {
	flags.BoolVar(&f.json, "json", false, "Print JSON.")
}

func (f *parkedFlags) filters(flags *flag.FlagSet) {
	f.output(flags)
	flags.StringVar(&f.filter.Class, "class", "", "Only accounts whose latest failure is of this class: transient, throttled, refused, denied, unsettled or lease.")
	flags.StringVar(&f.filter.ReasonContains, "reason-contains", "", "Only accounts whose latest failure's reason holds this text, whatever the case.")
	flags.DurationVar(&f.filter.OlderThan, "older-than", 0, "Only accounts that have been failing for at least this long.")
}

func (f *parkedFlags) many(flags *flag.FlagSet) {
	f.filters(flags)
	f.choosing = true
	flags.BoolVar(&f.all, "all", false, "Every parked account that the filters choose.")
}

func (f *parkedFlags) discard(flags *flag.FlagSet) {
	f.discarding = true
	f.many(flags)
	flags.StringVar(&f.reason, "reason", "", "Why the changes are given up, for the sync log; required.")
	flags.StringVar(&f.operator, "operator", operator(), "Who gives them up, for the sync log.")
	flags.StringVar(&f.from, "from", "", "File with the output of `parked list --json`: drop what it shows instead of what there is now.")
}

// maxOperator is the length of the column in the sync log.
const maxOperator = 256

func (f *parkedFlags) validate() error {
	if !f.discarding {
		return nil
	}
	var faults []error
	if f.reason == "" {
		faults = append(faults, errors.New("--reason is required: the sync log says why changes were given up"))
	}
	if f.operator == "" || len(f.operator) > maxOperator {
		faults = append(faults, fmt.Errorf("--operator is required, at most %d bytes: the sync log says who gave changes up", maxOperator))
	}
	return errors.Join(faults...)
}

// operator names whoever runs this, "" if that cannot be told.
func operator() string {
	user := os.Getenv("USER")
	if user == "" {
		return ""
	}
	if host, err := os.Hostname(); err == nil {
		return user + "@" + host
	}
	return user
}

// chosen returns the accounts that a command is to work on: the one it names, or
// with --all those that the filters choose.
func chosen(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, f parkedFlags) ([]parked.Account, error) {
	switch {
	case f.from != "":
		return shown(i, f)
	case f.all:
		return find(ctx, accounts, f.filter)
	}
	a, err := accounts.Get(ctx, i.Args[0])
	return []parked.Account{a}, notParked(i.Args[0], err)
}

func find(ctx context.Context, accounts *parked.Accounts, filter parked.Filter) ([]parked.Account, error) {
	found, now := []parked.Account{}, time.Now()
	err := accounts.Each(ctx, func(a parked.Account) error {
		if filter.Matches(a, now) {
			found = append(found, a)
		}
		return nil
	})
	return found, err
}

// shown reads what the operator was shown before.
func shown(i *process.Invocation, f parkedFlags) ([]parked.Account, error) {
	raw, err := os.ReadFile(f.from)
	if err != nil {
		return nil, process.UsageError{Err: fmt.Errorf("--from: %w", err)}
	}
	var all, found []parked.Account
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, process.UsageError{Err: fmt.Errorf("--from %s: not the output of `parked list --json`: %w", f.from, err)}
	}
	for _, a := range all {
		if f.all && f.filter.Matches(a, time.Now()) || !f.all && a.Account == i.Args[0] {
			found = append(found, a)
		}
	}
	if len(found) == 0 && !f.all {
		return nil, fmt.Errorf("%q is not in %s", i.Args[0], f.from)
	}
	return found, nil
}

func withAccounts(ctx context.Context, common process.Common, f func(context.Context, *parked.Accounts) error) error {
	return common.WithTemporal(ctx, func(temporal client.Client, options client.Options) error {
		return f(ctx, &parked.Accounts{
			Client: temporal, Converter: options.DataConverter, Namespace: options.Namespace,
			Pipeline: common.Pipeline, TaskQueue: common.Queue(),
		})
	})
}

func retryParked(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, f parkedFlags) error {
	found, err := chosen(ctx, i, accounts, f)
	if err != nil {
		return err
	}
	if err := eachShown(found, func(a parked.Account) error { return accounts.RetryShown(ctx, a) }); err != nil {
		return err
	}
	if f.json {
		return printJSON(i, found)
	}
	for _, a := range found {
		fmt.Fprintf(i.Stdout, "is being tried: %q\n", a.Account)
	}
	fmt.Fprintf(i.Stdout, "%d accounts\n", len(found))
	return nil
}

func discardParked(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, f parkedFlags) error {
	found, err := chosen(ctx, i, accounts, f)
	if err != nil {
		return err
	}
	if f.json {
		err = printJSON(i, found)
	} else {
		err = table(i, found)
	}
	if err != nil {
		return err
	}
	err = eachShown(found, func(a parked.Account) error { return accounts.Discard(ctx, a, f.operator, f.reason) })
	if err != nil || f.json {
		return err
	}
	changes := 0
	for _, a := range found {
		changes += a.Changes
	}
	fmt.Fprintf(i.Stdout, "%d changes of %d accounts are given up as soon as a worker has written that to the sync log\n", changes, len(found))
	return nil
}

// eachShown does something to every account and goes on after an error.
func eachShown(found []parked.Account, do func(parked.Account) error) error {
	var failed []error
	for _, a := range found {
		if err := do(a); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d accounts: %w", len(failed), len(found), failed[0])
	}
	return nil
}

func listParked(ctx context.Context, i *process.Invocation, accounts *parked.Accounts, f parkedFlags) error {
	found, err := find(ctx, accounts, f.filter)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(i, found)
	}
	if len(found) == 0 {
		fmt.Fprintln(i.Stderr, "no account is parked that the filters choose; one that was parked some seconds ago may be missing")
	}
	return table(i, found)
}

func table(i *process.Invocation, accounts []parked.Account) error {
	w := tabwriter.NewWriter(i.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACCOUNT\tCHANGES\tSINCE\tTRIES\tNEXT TRY\tCLASS\tREASON")
	for _, a := range accounts {
		fmt.Fprintf(w, "%q\t%d\t%s\t%d\t%s\t%s\t%s\n", a.Account, a.Changes, a.Failure.Since.Format(time.RFC3339), a.Failure.Tries,
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
	for _, r := range a.Pending {
		fmt.Fprintf(i.Stdout, "pending       %s@%d to %d: %d changes\n", r.Source, r.First.Offset, r.Last.Offset, r.Count)
	}
	for _, id := range a.Replays {
		fmt.Fprintf(i.Stdout, "replay        %s\n", id)
	}
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
