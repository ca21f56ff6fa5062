package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// replayInFlight is how many accounts of a replay are under way at a time, unless
// --in-flight says otherwise: few, because a live change finds at most so many
// calls before its own.
const replayInFlight = 6

// replayConfig are the settings of the replay commands. Kafka's count only where
// records are read.
type replayConfig struct {
	Common process.Common
	Kafka  consumer.Config
	Budget struct {
		UpstreamRPS int `env:"UPSTREAM_RPS" help:"Upstream calls that the fleet may start in any one second; only used to say how long a replay would take where the budget cannot be asked; 0: not known."`
	}
}

func newReplayConfig() *replayConfig {
	return &replayConfig{Common: process.DefaultCommon(""), Kafka: consumer.DefaultConfig()}
}

func (c *replayConfig) validate() error {
	if len(c.Kafka.Brokers) == 0 {
		return c.Common.Validate()
	}
	return errors.Join(c.Common.Validate(), service.Kafka(c.Common, c.Kafka).Validate())
}

// replayFlags is what a replay is asked for.
type replayFlags struct {
	accounts, file, records, since, until, parked string

	id, reason, operator   string
	maxRPS                 float64
	inFlight               int
	dryRun, detach, asJSON bool
}

func (f *replayFlags) bind(flags *flag.FlagSet) {
	flags.StringVar(&f.accounts, "accounts", "", "Account keys, separated by commas.")
	flags.StringVar(&f.file, "accounts-file", "", "File with an account key on each line; - is standard input.")
	flags.StringVar(&f.records, "records", "", "Ranges of records, TOPIC/PARTITION/FROM-TO with both offsets included, separated by commas.")
	flags.StringVar(&f.since, "since", "", "All partitions of KAFKA_TOPICS from here on: a duration back from now, or an RFC 3339 time.")
	flags.StringVar(&f.until, "until", "", "With --since: up to here, in the same form; now if empty.")
	flags.StringVar(&f.parked, "parked", "", "Accounts that are set aside and whose class or reason holds this text.")
	flags.StringVar(&f.reason, "reason", "", "Why, for the record; required.")
	flags.StringVar(&f.operator, "operator", operatorName(), "Who, for the record.")
	flags.StringVar(&f.id, "id", "", "ID of the replay, [a-z0-9-]{1,32}; one is made up if empty.")
	flags.Float64Var(&f.maxRPS, "max-rps", 0, "Accounts to begin in a second at most; 0: as the budget and live changes leave room.")
	flags.IntVar(&f.inFlight, "in-flight", replayInFlight, "Accounts under way at a time: as many calls may be before a live change's. Raise it with the budget: each takes some tenths of a second.")
	flags.BoolVar(&f.dryRun, "dry-run", false, "Only say what it would do, and how long that takes at what the budget has free now.")
	flags.BoolVar(&f.detach, "detach", false, "Do not stay to show the progress.")
	flags.BoolVar(&f.asJSON, "json", false, "Print JSON.")
}

func operatorName() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

var replayID = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

func (f *replayFlags) validate() error {
	var faults []error
	chosen := 0
	for _, given := range []bool{f.accounts != "" || f.file != "", f.records != "", f.since != "", f.parked != ""} {
		if given {
			chosen++
		}
	}
	if chosen != 1 {
		faults = append(faults, errors.New("say what to replay: one of --accounts (and --accounts-file), --records, --since, --parked"))
	}
	if f.until != "" && f.since == "" {
		faults = append(faults, errors.New("--until goes together with --since"))
	}
	if strings.TrimSpace(f.reason) == "" && !f.dryRun {
		faults = append(faults, errors.New("--reason is required: it is what the next person will want to know"))
	}
	if f.operator == "" {
		faults = append(faults, errors.New("--operator must not be empty"))
	}
	if f.id != "" && !replayID.MatchString(f.id) {
		faults = append(faults, fmt.Errorf("--id %q: must be 1 to 32 of a-z, 0-9 and -", f.id))
	}
	if f.maxRPS < 0 {
		faults = append(faults, fmt.Errorf("--max-rps %g: must not be negative", f.maxRPS))
	}
	if f.inFlight < 1 || f.inFlight > 1000 {
		faults = append(faults, fmt.Errorf("--in-flight %d: must be from 1 to 1000", f.inFlight))
	}
	return errors.Join(faults...)
}

func replayCommands() []process.Command {
	return []process.Command{
		replayControl("list", "List the replays that Temporal remembers.", func(ctx context.Context, i *process.Invocation, c *replay.Control, asJSON bool) error {
			views, err := c.List(ctx)
			if err != nil {
				return err
			}
			return printReplays(i.Stdout, views, asJSON)
		}),
		replayControl("show ID", "Show how far a replay has come.", func(ctx context.Context, i *process.Invocation, c *replay.Control, asJSON bool) error {
			v, err := c.Show(ctx, i.Args[0])
			if err != nil {
				return replayError(i.Args[0], err)
			}
			return printReplays(i.Stdout, []replay.View{v}, asJSON)
		}),
		replayAction("pause ID", "Have a replay begin no more accounts, within a second or two.", "paused", (*replay.Control).Pause),
		replayAction("resume ID", "Have a paused replay go on.", "resumed", (*replay.Control).Resume),
		replayAction("cancel ID", "End a replay; accounts under way are still called.", "cancelled", (*replay.Control).Cancel),
		replayCommand(),
	}
}

func replayCommand() process.Command {
	settings, flags := newReplayConfig(), &replayFlags{}
	return process.Command{
		Name:    "replay",
		Summary: "Have accounts called again: those of some records, of a list, or parked ones.",
		Help: `A replay is a workflow: it survives any crash, and each account is called once,
whatever its row says, together with live changes that wait for their call; one
that a call has read since the replay began is done. Its calls come after live ones. Consumer offsets are neither read nor moved. The
sync log names the replay of every call it causes. Running bridges do the work.
replay list, show, pause, resume and cancel look after it.`,
		Needs: "--reason, one of --records, --since, --accounts, --accounts-file and --parked; the bridge's settings, and Temporal",
		Examples: []string{
			`replay --since 2h --reason "upstream served old data" --dry-run`,
			`replay --records account-changes/3/1000-1999 --reason "mapping was wrong"`,
			`replay --accounts account-7,account-9 --reason "ticket 123" --detach`,
			`replay --parked "HTTP 500" --reason "upstream is mended"`,
		},
		Settings: []any{settings},
		Flags:    flags.bind,
		Validate: func() error { return errors.Join(settings.validate(), flags.validate()) },
		Run: func(ctx context.Context, i *process.Invocation) error {
			return startReplay(ctx, i, settings, flags)
		},
	}
}

func startReplay(ctx context.Context, i *process.Invocation, settings *replayConfig, f *replayFlags) error {
	kafka, err := replayKafka(settings.Kafka)
	if err != nil {
		return process.UsageError{Err: err}
	}
	in := contract.ReplayInput{
		ID: f.id, Operator: f.operator, Reason: f.reason, MaxPerSecond: f.maxRPS, InFlight: f.inFlight,
	}
	if in.ID == "" {
		in.ID = time.Now().UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:4])
	}
	if err := selectRecords(ctx, &in, kafka, settings, f, os.Stdin); err != nil {
		return err
	}
	if f.dryRun && f.parked == "" {
		return dryRun(ctx, i, kafka, in, settings, f)
	}
	return withControl(ctx, settings.Common, func(c *replay.Control) error {
		if f.parked != "" {
			if err := selectParked(ctx, &in, c, f.parked); err != nil {
				return err
			}
			if f.dryRun {
				return dryRun(ctx, i, kafka, in, settings, f)
			}
		}
		if len(in.Accounts) == 0 && len(in.Ranges) == 0 {
			return errors.New("there is nothing to replay")
		}
		if err := c.Start(ctx, in); err != nil {
			return err
		}
		fmt.Fprintf(i.Stderr, "replay %s has begun: %s\n", in.ID, in.What)
		if f.detach {
			fmt.Fprintln(i.Stdout, in.ID)
			return nil
		}
		return follow(ctx, i, c, in.ID, f.asJSON)
	})
}

func replayKafka(c consumer.Config) (*replay.Kafka, error) {
	if len(c.Brokers) == 0 {
		return &replay.Kafka{}, nil // lists need none
	}
	in, err := intake.New(c.Intake)
	if err != nil {
		return nil, err
	}
	options, err := c.Connection()
	return &replay.Kafka{Options: options, Intake: in}, err
}

func withControl(ctx context.Context, common process.Common, f func(*replay.Control) error) error {
	return common.WithTemporal(ctx, func(temporal client.Client, options client.Options) error {
		return f(newControl(temporal, options, common))
	})
}

func newControl(temporal client.Client, options client.Options, common process.Common) *replay.Control {
	return &replay.Control{
		Client: temporal, Converter: options.DataConverter, Namespace: options.Namespace,
		Pipeline: common.Pipeline, TaskQueue: common.Queue(),
	}
}

func replayControl(name, summary string, do func(context.Context, *process.Invocation, *replay.Control, bool) error) process.Command {
	common, asJSON := process.DefaultCommon(""), false
	return process.Command{
		Name: "replay " + name, Summary: summary, Settings: []any{&common},
		Needs: "PIPELINE and Temporal", Examples: []string{"replay " + strings.Replace(name, "ID", "20260131-120000-abcd", 1)},
		Flags:    func(flags *flag.FlagSet) { flags.BoolVar(&asJSON, "json", false, "Print JSON.") },
		Validate: func() error { return common.Validate() },
		Run: func(ctx context.Context, i *process.Invocation) error {
			return withControl(ctx, common, func(c *replay.Control) error { return do(ctx, i, c, asJSON) })
		},
	}
}

func replayAction(name, summary, done string, do func(*replay.Control, context.Context, string) error) process.Command {
	return replayControl(name, summary, func(ctx context.Context, i *process.Invocation, c *replay.Control, asJSON bool) error {
		id := i.Args[0]
		if err := do(c, ctx, id); err != nil {
			return replayError(id, err)
		}
		if asJSON {
			return json.NewEncoder(i.Stdout).Encode(map[string]string{"id": id, "done": done})
		}
		fmt.Fprintf(i.Stdout, "replay %s is %s\n", id, done)
		return nil
	})
}

func replayError(id string, err error) error {
	if errors.Is(err, replay.ErrNotFound) || errors.Is(err, replay.ErrOver) {
		return fmt.Errorf("%s: %w; bridge replay list shows those there are", id, err)
	}
	return err
}

func printReplays(w io.Writer, views []replay.View, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(views)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTATUS\tDONE\tSYNCED\tUNCHANGED\tCHANGED\tFRESH\tPARKED\tINVALID\tBEGAN\tOPERATOR\tWHAT\tREASON")
	for _, v := range views {
		c := v.Progress.Counts
		fmt.Fprintf(table, "%s\t%s\t%.0f%%\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", v.ID, statusOf(v), 100*v.Fraction(),
			c.Synced, c.Unchanged, c.Changed, c.Fresh, c.Parked, c.Invalid, v.StartedAt.Format(time.RFC3339), v.Operator, v.What, v.Reason)
	}
	return table.Flush()
}

func statusOf(v replay.View) string {
	if v.Open() && v.Paused {
		return "paused"
	}
	return v.Status
}
