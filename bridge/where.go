package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/bridge/where"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// findTimeout bounds the look into Kafka and Temporal.
const findTimeout = 30 * time.Second

func whereCommand(settings *service.Config) process.Command {
	asJSON, status := false, ""
	return process.Command{
		Name:    "where TOPIC/PARTITION/OFFSET",
		Summary: "Say what became of one record, when, and which command shows more.",
		Help: `States: never seen, no record, filtered, buffered, signalled, parked, covered,
committed, dead-lettered. The bridge at --status (STATUS_ADDR) is asked first:
only it knows what it has in hand. Where none answers, or the record is done,
Kafka and Temporal are read; that needs no bridge.`,
		Needs:    "PIPELINE, KAFKA_BROKERS, KAFKA_TOPICS, DEAD_LETTER_TOPIC, as the bridge has them, and Temporal",
		Examples: []string{"where account-changes/3/1841", "where account-changes/3/1841 --status http://bridge-0:8081 --json"},
		Settings: []any{settings},
		Validate: func() error {
			return errors.Join(settings.Common.Validate(), service.Kafka(settings.Common, settings.Kafka).Validate())
		},
		Flags: func(flags *flag.FlagSet) {
			flags.BoolVar(&asJSON, "json", false, "Print JSON.")
			flags.StringVar(&status, "status", "", "Base URL of the bridge to ask, http://host:port; empty: STATUS_ADDR.")
		},
		Run: func(ctx context.Context, i *process.Invocation) error {
			record, err := where.Parse(i.Args[0])
			if err != nil {
				return process.UsageError{Err: err}
			}
			answer, err := findRecord(ctx, *settings, record, status, i.Stderr)
			if err != nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(i.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(answer)
			}
			answer.Print(i.Stdout)
			return nil
		},
	}
}

// findRecord asks the bridge, then Kafka and Temporal. A bridge that was named
// and does not answer is mentioned, and is no error.
func findRecord(ctx context.Context, settings service.Config, r where.Record, status string, stderr io.Writer) (where.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	known, err := askBridge(ctx, settings, r, status)
	if err != nil && status != "" {
		fmt.Fprintf(stderr, "no answer from the bridge: %v\n", err)
	}
	if err == nil && (known.State == where.Buffered || known.State == where.Signalled || known.State == where.NeverSeen) {
		return known, nil
	}
	found, direct := findDirect(ctx, settings, r)
	if direct != nil && err == nil {
		fmt.Fprintf(stderr, "only the bridge answered: %v\n", direct)
		return known, nil
	}
	return found, direct
}

func askBridge(ctx context.Context, settings service.Config, r where.Record, status string) (where.Answer, error) {
	if status == "" {
		if settings.Common.StatusAddr == "" || settings.Common.StatusAddr == "none" {
			return where.Answer{}, errors.New("STATUS_ADDR names no status page")
		}
		status = "http://" + settings.Common.StatusAddr
	}
	query := url.Values{"topic": {r.Topic}, "partition": {strconv.Itoa(int(r.Partition))}, "offset": {strconv.FormatInt(r.Offset, 10)}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(status, "/")+"/where?"+query.Encode(), nil)
	if err != nil {
		return where.Answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return where.Answer{}, err
	}
	defer response.Body.Close()
	body := io.LimitReader(response.Body, 1<<20)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(body)
		return where.Answer{}, errors.New(strings.TrimSpace(string(text)))
	}
	var answer where.Answer
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return where.Answer{}, fmt.Errorf("answer of %s: %w", status, err)
	}
	return answer, nil
}

func findDirect(ctx context.Context, settings service.Config, r where.Record) (where.Answer, error) {
	options, err := settings.Kafka.Connection()
	if err != nil {
		return where.Answer{}, process.UsageError{Err: err}
	}
	in, err := intake.New(settings.Kafka.Intake)
	if err != nil {
		return where.Answer{}, process.UsageError{Err: err}
	}
	stop := func() {}
	defer func() { stop() }()
	finder := where.Finder{
		Kafka:  where.Kafka{Options: options, Group: service.Kafka(settings.Common, settings.Kafka).Group, DeadLetters: settings.Kafka.Intake.DeadLetterTopic},
		Intake: in,
		Temporal: func(ctx context.Context) (where.Temporal, error) {
			ctx, cancel := context.WithTimeout(ctx, findTimeout/3)
			defer cancel()
			client, dialed, err := process.DialTemporal(ctx, settings.Common.Log.Logger(os.Stderr), telemetry.Discard)
			if err != nil {
				return where.Temporal{}, err
			}
			stop = client.Close
			return where.Temporal{Client: client, Converter: dialed.DataConverter, Namespace: dialed.Namespace, Pipeline: settings.Common.Pipeline}, nil
		},
	}
	return finder.Find(ctx, r)
}
