package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/bridge/replay"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/worker/parked"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// selectRecords fills in what is to be replayed, parked accounts excepted.
func selectRecords(ctx context.Context, in *contract.ReplayInput, kafka *replay.Kafka, settings *replayConfig, f *replayFlags, stdin io.Reader) error {
	switch {
	case f.accounts != "" || f.file != "":
		return selectAccounts(in, f, stdin)
	case f.parked != "":
		return nil
	case len(settings.Kafka.Brokers) == 0:
		return process.UsageError{Err: config.Fault{Name: "KAFKA_BROKERS", Problem: "is required to replay records"}}
	case f.records != "":
		in.What = "records " + f.records
		for text := range strings.SplitSeq(f.records, ",") {
			r, err := replay.ParseRange(strings.TrimSpace(text))
			if err != nil {
				return process.UsageError{Err: err}
			}
			in.Ranges = append(in.Ranges, r)
		}
		return nil
	}
	now := time.Now()
	since, err := instant(f.since, now)
	until := now
	if err == nil && f.until != "" {
		until, err = instant(f.until, now)
	}
	if err == nil && !since.Before(until) {
		err = errors.New("--since is not before --until")
	}
	if err != nil {
		return process.UsageError{Err: err}
	}
	in.What = fmt.Sprintf("records of %s from %s to %s", strings.Join(settings.Kafka.Topics, ", "), since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	in.Ranges, err = kafka.Between(ctx, settings.Kafka.Topics, since, until)
	return err
}

func selectAccounts(in *contract.ReplayInput, f *replayFlags, stdin io.Reader) error {
	var accounts []string
	if f.accounts != "" {
		accounts = strings.Split(f.accounts, ",")
	}
	if f.file != "" {
		source := stdin
		if f.file != "-" {
			file, err := os.Open(f.file)
			if err != nil {
				return process.UsageError{Err: err}
			}
			defer file.Close() //nolint:errcheck // only read
			source = file
		}
		more, err := replay.ReadAccounts(source)
		if err != nil {
			return fmt.Errorf("read %s: %w", f.file, err)
		}
		accounts = append(accounts, more...)
	}
	list, err := replay.AccountList(accounts)
	if err != nil {
		return process.UsageError{Err: err}
	}
	in.Accounts, in.What = list, fmt.Sprintf("%d named accounts", len(list))
	return nil
}

// selectParked chooses those that are parked now; one that is parked later is
// not part of the replay.
func selectParked(ctx context.Context, in *contract.ReplayInput, c *replay.Control, text string) error {
	accounts := &parked.Accounts{Client: c.Client, Converter: c.Converter, Namespace: c.Namespace, Pipeline: c.Pipeline, TaskQueue: c.TaskQueue}
	var keys []string
	err := accounts.Each(ctx, func(a parked.Account) error {
		if strings.Contains(a.Failure.Reason, text) || strings.Contains(a.Failure.Class, text) {
			keys = append(keys, a.Account)
		}
		return nil
	})
	if err != nil {
		return err
	}
	in.What = fmt.Sprintf("%d parked accounts whose class or reason holds %q", len(keys), text)
	in.Accounts, err = replay.AccountList(keys)
	return err
}

// instant reads an RFC 3339 time, or a duration back from now.
func instant(text string, now time.Time) (time.Time, error) {
	if back, err := time.ParseDuration(text); err == nil {
		return now.Add(-back), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a duration such as 24h nor a time such as 2026-01-02T15:04:05Z", text)
	}
	return at, nil
}
