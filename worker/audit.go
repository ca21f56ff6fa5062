package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/audit"
	"github.com/quiesce-io/quiesce/worker/service"
)

// auditConfig are the settings of the audit commands. Kafka's count only where
// KAFKA_BROKERS is set.
type auditConfig struct {
	Common process.Common
	Settle config.Settle
	Budget budget.Config
	Store  store.Config
	Kafka  consumer.Config
}

func defaultAuditConfig() *auditConfig {
	return &auditConfig{
		Common: process.DefaultCommon(""), Settle: config.DefaultSettle(), Budget: budget.Default(),
		Store: store.Default(), Kafka: consumer.DefaultConfig(),
	}
}

// validate leaves the budget out: it is checked where it is used.
func (c *auditConfig) validate() error {
	faults := []error{c.Common.Validate(), c.Settle.Validate(), c.Store.Validate()}
	if c.Kafka.Group == "" {
		c.Kafka.Group = c.Common.Pipeline
	}
	if len(c.Kafka.Brokers) > 0 {
		faults = append(faults, c.Kafka.Validate())
	}
	return errors.Join(faults...)
}

// span are the flags that choose a window.
type span struct {
	since, until string
	fallback     time.Duration // how far back without --since; 0: everything
}

func (s *span) flags(flags *flag.FlagSet) {
	flags.StringVar(&s.since, "since", "", "Where to begin: a duration back from now, such as 24h, or an RFC 3339 time; "+s.otherwise()+".")
	flags.StringVar(&s.until, "until", "", "Where to end, in the same form; now if empty.")
}

func (s *span) otherwise() string {
	if s.fallback == 0 {
		return "as far back as there is anything if empty"
	}
	return s.fallback.String() + " ago if empty"
}

func (s *span) window(now time.Time) (audit.Window, error) {
	w := audit.Window{Since: time.Unix(0, 0).UTC(), Until: now.Add(time.Hour).UTC()} // clocks may be ahead of ours
	if s.fallback > 0 {
		w.Since = now.Add(-s.fallback).UTC()
	}
	var errs []error
	for _, f := range []struct {
		name, text string
		to         *time.Time
	}{{"since", s.since, &w.Since}, {"until", s.until, &w.Until}} {
		if f.text == "" {
			continue
		}
		at, err := instant(f.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", f.name, err))
			continue
		}
		*f.to = at
	}
	if err := errors.Join(errs...); err != nil {
		return w, process.UsageError{Err: err}
	}
	if !w.Since.Before(w.Until) {
		return w, process.UsageError{Err: fmt.Errorf("--since %s is not before --until %s", w.Since.Format(time.RFC3339), w.Until.Format(time.RFC3339))}
	}
	return w, nil
}

// instant reads an RFC 3339 time, or a duration back from now.
func instant(text string, now time.Time) (time.Time, error) {
	if back, err := time.ParseDuration(text); err == nil {
		return now.Add(-back).UTC(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a duration such as 24h nor a time such as 2026-01-02T15:04:05Z", text)
	}
	return at.UTC(), nil
}

// auditCommands are the commands that explain and check what has happened.
// Those of two words come first: an account may be called verify.
func auditCommands() []process.Command {
	return []process.Command{auditVerifyCommand(), auditExportCommand(), auditReplayCommand(), auditCommand()}
}

func auditCommand() process.Command {
	settings, window, asJSON, record := defaultAuditConfig(), &span{}, false, ""
	return process.Command{
		Name:    "audit [ACCOUNT]",
		Summary: "Tell what happened to an account, or to one record, in one timeline.",
		Help: `Merges the sync log, the account's runs in Temporal and, where KAFKA_BROKERS is
set, the group's committed offsets. What retention has dropped is named.
An account that is called verify, export or replay goes behind --: audit -- verify.`,
		Needs:    "PIPELINE, SPANNER_DATABASE and Temporal; for --record KAFKA_BROKERS and KAFKA_TOPICS, too",
		Examples: []string{"audit account-7", "audit account-7 --since 24h --json", "audit --record account-changes/3/1841"},
		Settings: []any{settings}, Validate: settings.validate,
		Flags: func(flags *flag.FlagSet) {
			window.flags(flags)
			jsonFlag(&asJSON)(flags)
			flags.StringVar(&record, "record", "", "TOPIC/PARTITION/OFFSET: tell what became of this record, and of its account.")
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			if (record == "") == (len(i.Args) == 0) {
				return process.UsageError{Err: errors.New("give either ACCOUNT or --record TOPIC/PARTITION/OFFSET")}
			}
			return withAuditor(ctx, settings, window, func(ctx context.Context, a *audit.Auditor, w audit.Window) error {
				if record != "" {
					return tellRecord(ctx, i, a, record, w, asJSON)
				}
				return tell(ctx, i, a, i.Args[0], w, nil, asJSON)
			})
		},
	}
}

func tellRecord(ctx context.Context, i *process.Invocation, a *audit.Auditor, name string, w audit.Window, asJSON bool) error {
	topic, partition, offset, err := audit.ParseRecord(name)
	if err != nil {
		return process.UsageError{Err: fmt.Errorf("--record: %w", err)}
	}
	if a.Kafka == nil {
		return process.UsageError{Err: config.Fault{Name: "KAFKA_BROKERS", Problem: "is required to read a record"}}
	}
	record, err := a.Kafka.Record(ctx, topic, partition, offset)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if record.Bad != "" {
		return fmt.Errorf("%s has no usable account key: %s; see the dead letters", name, record.Bad)
	}
	return tell(ctx, i, a, record.Account, w, &record, asJSON)
}

func tell(ctx context.Context, i *process.Invocation, a *audit.Auditor, account string, w audit.Window, record *audit.Change, asJSON bool) error {
	timeline, err := a.Timeline(ctx, account, w, record)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(i, timeline)
	}
	return timeline.Print(i.Stdout)
}

func auditVerifyCommand() process.Command {
	settings, window, asJSON := defaultAuditConfig(), &span{fallback: 24 * time.Hour}, false
	settings.Budget.UpstreamRPS = 0
	jitter := 100 * time.Millisecond
	return process.Command{
		Name:    "audit verify",
		Summary: "Check the promises on what was really done; exit status 1 if one was broken.",
		Help: `Over the window: every change that a sync lists had settled for its call (by the
run's own settings while Temporal has them, else SETTLE_TIME + MAX_CLOCK_SKEW); no
call without a change or a replay; calls per second within UPSTREAM_RPS; rows equal
to the last sync's hash; no parked run ended by hand with changes pending; and, where
KAFKA_BROKERS is set, every committed record covered, pending in an open run, or a
dead letter. Prints what it looked at and every violation.`,
		Needs:    "PIPELINE, SPANNER_DATABASE and Temporal; UPSTREAM_RPS and KAFKA_* for what they are about",
		Examples: []string{"audit verify --since 25h", "audit verify --since 2026-01-02T00:00:00Z --until 2026-01-03T00:00:00Z --json"},
		Settings: []any{settings}, Validate: settings.validate,
		Flags: func(flags *flag.FlagSet) {
			window.flags(flags)
			jsonFlag(&asJSON)(flags)
			flags.DurationVar(&jitter, "call-jitter", jitter, "How much the times of two calls may be off; shortens the second over which calls are counted.")
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			if jitter < 0 || jitter >= time.Second {
				return process.UsageError{Err: fmt.Errorf("--call-jitter %s: must be from 0 to less than 1s", jitter)}
			}
			return withAuditor(ctx, settings, window, func(ctx context.Context, a *audit.Auditor, w audit.Window) error {
				report, err := a.Verify(ctx, w, audit.Rules{Settle: settings.Settle.Total(), Budget: settings.Budget.UpstreamRPS, Jitter: jitter})
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(i, report)
				} else {
					err = report.Print(i.Stdout)
				}
				if err == nil && len(report.Violations) > 0 {
					err = fmt.Errorf("%d violations", len(report.Violations))
				}
				return err
			})
		},
	}
}

func auditExportCommand() process.Command {
	settings, window, format := defaultAuditConfig(), &span{fallback: 24 * time.Hour}, audit.FormatJSONL
	return process.Command{
		Name:     "audit export",
		Summary:  "Write the sync log of a window, for other tools.",
		Help:     "The schema is described in docs/audit.md; it is only ever extended. Counts go to stderr.",
		Needs:    "PIPELINE and SPANNER_DATABASE",
		Examples: []string{"audit export --since 24h > syncs.jsonl", "audit export --since 24h --format csv > syncs.csv"},
		Settings: []any{&settings.Store, &settings.Common},
		Validate: func() error { return errors.Join(settings.Common.Validate(), settings.Store.Validate()) },
		Flags: func(flags *flag.FlagSet) {
			window.flags(flags)
			flags.StringVar(&format, "format", format, "jsonl or csv.")
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			if format != audit.FormatJSONL && format != audit.FormatCSV {
				return process.UsageError{Err: fmt.Errorf("--format %q: must be %s or %s", format, audit.FormatJSONL, audit.FormatCSV)}
			}
			w, err := window.window(time.Now())
			if err != nil {
				return err
			}
			return withLog(ctx, settings.Common, settings.Store, func(log *audit.Log) error {
				n, err := audit.Export(ctx, log, w, format, i.Stdout)
				if err == nil {
					fmt.Fprintf(i.Stderr, "%d syncs\n", n)
				}
				return err
			})
		},
	}
}

func auditReplayCommand() process.Command {
	settings, window, asJSON := defaultAuditConfig(), &span{}, false
	return process.Command{
		Name:     "audit replay ID",
		Summary:  "Tell what a replay called, and which payloads it changed, with their hashes before and after.",
		Help:     "Reads the sync log, so it works after Temporal's retention has dropped the replay.",
		Needs:    "PIPELINE and SPANNER_DATABASE",
		Examples: []string{"audit replay 20260131-120000-abcd", "audit replay 20260131-120000-abcd --json > changed.json"},
		Settings: []any{&settings.Store, &settings.Common},
		Validate: func() error { return errors.Join(settings.Common.Validate(), settings.Store.Validate()) },
		Flags: func(flags *flag.FlagSet) {
			window.flags(flags)
			jsonFlag(&asJSON)(flags)
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			w, err := window.window(time.Now())
			if err != nil {
				return err
			}
			return withLog(ctx, settings.Common, settings.Store, func(log *audit.Log) error {
				report, err := log.Replay(ctx, i.Args[0], w)
				switch {
				case err != nil:
					return err
				case report.Calls == 0:
					return fmt.Errorf("the sync log names no replay %q in this window", i.Args[0])
				case asJSON:
					return printJSON(i, report)
				}
				return report.Print(i.Stdout)
			})
		},
	}
}

func jsonFlag(asJSON *bool) func(*flag.FlagSet) {
	return func(flags *flag.FlagSet) { flags.BoolVar(asJSON, "json", false, "Print JSON.") }
}

func withLog(ctx context.Context, common process.Common, settings store.Config, f func(*audit.Log) error) error {
	s, err := service.ReadStore(ctx, common, settings)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(&audit.Log{Client: s.Client(), Accounts: settings.AccountsTable, Syncs: settings.SyncsTable})
}

// withAuditor connects to all that is configured.
func withAuditor(ctx context.Context, settings *auditConfig, window *span, f func(context.Context, *audit.Auditor, audit.Window) error) error {
	w, err := window.window(time.Now())
	if err != nil {
		return err
	}
	kafka, err := auditKafka(settings.Kafka)
	if err != nil {
		return process.UsageError{Err: err}
	}
	return settings.Common.WithTemporal(ctx, func(temporal client.Client, options client.Options) error {
		return withLog(ctx, settings.Common, settings.Store, func(log *audit.Log) error {
			runs := &audit.Runs{
				Service: temporal.WorkflowService(), Namespace: options.Namespace,
				Pipeline: settings.Common.Pipeline, Converter: options.DataConverter,
			}
			return f(ctx, &audit.Auditor{Log: log, Runs: runs, Kafka: kafka}, w)
		})
	})
}

func auditKafka(c consumer.Config) (*audit.Kafka, error) {
	if len(c.Brokers) == 0 {
		return nil, nil
	}
	in, err := intake.New(c.Intake)
	if err != nil {
		return nil, err
	}
	options, err := c.Connection()
	if err != nil {
		return nil, err
	}
	return &audit.Kafka{Group: c.Group, Topics: c.Topics, DeadLetter: c.Intake.DeadLetterTopic, Intake: in, Options: options}, nil
}
