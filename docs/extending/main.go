// This is a worker for a team whose system of record speaks gRPC and whose rows
// live in a database of its own.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/worker/service"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	temporal, err := client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		log.Fatal(err)
	}
	defer temporal.Close()
	config := service.DefaultConfig()
	config.Common.Pipeline = cmp.Or(os.Getenv("PIPELINE"), "crm") // as the bridge has it
	config.Common.StatusAddr = os.Getenv("STATUS_ADDR")           // none if empty
	config.Budget.UpstreamRPS = 20
	worker := service.New(config, service.Deps{
		Temporal: temporal, Logger: slog.Default(), Metrics: silent{},
		Upstream: directory{get: dial()}, Store: &table{rows: map[string]store.Row{}, log: map[string]contract.Outcome{}},
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// directory is an [upstream.Fetcher]: one call, at most, for one Fetch.
type directory struct {
	get func(ctx context.Context, id string) (json []byte, version int64, err error) // the generated client
}

var errNoSuchAccount, errBusy = errors.New("no such account"), errors.New("busy")

func (d directory) Fetch(ctx context.Context, account string) (upstream.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	body, version, err := d.get(ctx, account)
	switch {
	case errors.Is(err, errNoSuchAccount): // codes.NotFound
		return upstream.Response{Deleted: true}, nil
	case errors.Is(err, errBusy): // codes.ResourceExhausted
		return upstream.Response{}, &upstream.Error{Class: contract.ClassThrottled, Reason: "busy", RetryAfter: time.Second}
	case err != nil: // codes.InvalidArgument would be ClassRefused, codes.Unauthenticated ClassDenied
		return upstream.Response{}, &upstream.Error{Class: contract.ClassTransient, Reason: "call failed", Err: err}
	}
	response := upstream.Response{Status: 200, Body: body}
	return response, response.Version.UnmarshalText([]byte(time.Unix(0, version).UTC().Format(time.RFC3339Nano)))
}

// table is an [activities.Store]. Each method would be one transaction.
type table struct {
	mu   sync.Mutex
	rows map[string]store.Row
	log  map[string]contract.Outcome // by account, sync, attempt and call
}

func (t *table) Read(_ context.Context, account string) (store.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[account], nil // the zero Row where there is none
}

// Write lets the newer call win, and answers a repetition as it did before.
func (t *table) Write(_ context.Context, s store.Sync) (contract.Outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := s.Account + "\x00" + s.SyncID + "\x00" + fmt.Sprint(s.Attempt, s.CalledAt.UnixNano())
	if outcome, done := t.log[key]; done {
		return outcome, nil
	}
	row, outcome := t.rows[s.Account], contract.OutcomeWritten
	switch {
	case row.CalledAt.After(s.CalledAt), !s.Deleted && s.Version.OlderThan(row.Version):
		outcome = contract.OutcomeFenced
	case s.Deleted:
		outcome = contract.OutcomeDeleted
	}
	if t.log[key] = outcome; outcome != contract.OutcomeFenced {
		t.rows[s.Account] = store.Row{ // and s.Payload
			CalledAt: s.CalledAt, Through: contract.Advance(row.Through, s.Covered, s.Pending),
			SyncID: s.SyncID, Attempt: s.Attempt, Deleted: s.Deleted, Version: s.Version,
		}
	}
	return outcome, nil
}

// Unsettled would keep how long upstream took.
func (t *table) Unsettled(context.Context, store.Sync, []contract.Range) error { return nil }

// Discard puts on record which changes an operator gave up.
func (t *table) Discard(_ context.Context, d store.Discard) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log[d.Account+"\x00"+d.ID] = contract.OutcomeDiscarded
	return nil
}

// silent is where metrics go that nobody reads.
type silent struct{}

func (silent) Count(string, int64, ...string)          {}
func (silent) Gauge(string, float64, ...string)        {}
func (silent) Timing(string, time.Duration, ...string) {}
