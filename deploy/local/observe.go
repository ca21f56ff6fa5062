package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// live is what the view shows.
type live struct {
	changes, calls int
	// covered are the changes that calls have served; the rest is not late. served
	// says which call served how many.
	covered int
	served  []served
	// pending is the bridge's uncommitted changes; oldest is the age of the first
	// change that is not committed, whether the bridge knows of it or not.
	pending int
	oldest  time.Duration
	// lag is the group's lag, summed over partitions.
	lag int64
	// stale and lost are promises broken for certain; see countBroken.
	stale, lost int
	draining    bool
}

// live observes the run from outside: simulator, Kafka, and the bridge's status.
func (d *demo) live(ctx context.Context) (live, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	lags, err := d.pipeline.Lags(ctx)
	if err != nil {
		return live{}, err
	}
	var state bridgeState
	if err := readStatus(ctx, d.bridge.StatusURL, &state); err != nil {
		return live{}, err
	}
	// Calls after the offsets: a call that a commit rests on is among them.
	changes, calls := d.generator.Changes(), d.pipeline.Upstream.Calls()
	l := live{changes: len(changes), calls: len(calls), pending: state.Uncommitted}
	committed := map[int32]int64{}
	for _, lag := range lags {
		l.lag += lag.Lag
		committed[lag.Partition] = lag.Committed
	}
	l.oldest = oldestUncommitted(changes, committed, time.Now())
	l.served = attribute(changes, calls, d.opts.settle())
	l.covered = covered(l.served)
	l.stale, l.lost = countBroken(changes, calls, committed, d.opts.settle())
	return l, nil
}

// oldestUncommitted is the age of the oldest change whose offset is not committed.
// The bridge would not do: after a kill it has seen nothing for a while.
func oldestUncommitted(changes []load.Change, committed map[int32]int64, now time.Time) time.Duration {
	for _, change := range changes { // in the order they were made
		if at := committed[change.Partition]; change.Offset < 0 || change.Offset >= at {
			return max(0, now.Sub(change.At))
		}
	}
	return 0
}

// countBroken counts promises that are broken for certain while the run goes
// on. lost: changes whose offset is committed although no call that they were
// settled for was answered. stale: accounts for which upstream answered such a
// call with an older version, so that the simulator's lag exceeds the settle
// time.
func countBroken(changes []load.Change, calls []upstream.Call, committed map[int32]int64, settle time.Duration) (stale, lost int) {
	latest := map[string]upstream.Call{} // latest answered call by account
	for _, call := range calls {
		if answered(call) {
			latest[call.Account] = call
		}
	}
	behind := map[string]bool{}
	for _, change := range changes {
		call, called := latest[change.Account]
		settled := called && !change.At.Add(settle).After(call.Start)
		if settled && call.Status == http.StatusOK && call.Version < change.Version {
			behind[change.Account] = true
		}
		if at, ok := committed[change.Partition]; ok && !settled && change.Offset >= 0 && change.Offset < at {
			lost++
		}
	}
	return len(behind), lost
}

// observe gathers what the summary is made of, once the bridge has stopped.
func (d *demo) observe(ctx context.Context) (check.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	o := check.Observed{Settle: d.opts.settle(), Delay: d.opts.settleDelay, DeadLettered: map[string]bool{}}
	for _, change := range d.generator.Changes() {
		o.Changes = append(o.Changes, check.Made{Account: change.Account, At: change.At})
	}
	var err error
	if o.Uncommitted, err = d.pipeline.Lag(ctx); err != nil {
		return o, err
	}
	letters, err := d.stack.ReadAll(ctx, d.pipeline.DeadLetterTopic)
	if err != nil {
		return o, err
	}
	o.DeadLetters = int64(len(letters))
	for _, letter := range letters {
		o.DeadLettered[string(letter.Key)] = true
	}
	if o.Parked, err = d.parked(ctx); err != nil {
		return o, err
	}
	client, err := d.stack.Spanner.Client(ctx, d.pipeline.Database)
	if err != nil {
		return o, err
	}
	defer client.Close()
	if o.Rows, err = check.ReadRows(ctx, client); err != nil {
		return o, err
	}
	if o.Syncs, err = check.ReadSyncs(ctx, client); err != nil {
		return o, err
	}
	o.Calls, o.Truth = d.pipeline.Upstream.Calls(), d.pipeline.Upstream.Truth()
	return o, nil
}

// parked asks `worker parked list --json`.
func (d *demo) parked(ctx context.Context) (map[string]bool, error) {
	cmd := exec.CommandContext(ctx, d.worker.Path, "parked", "list", "--json")
	cmd.Env = append(os.Environ(), d.worker.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("worker parked list: %w\n%s", err, stack.Tail(stderr.String()))
	}
	accounts, err := parseParked(output)
	if err != nil {
		return nil, fmt.Errorf("worker parked list: %w", err)
	}
	return accounts, nil
}

// parseParked reads a JSON array of objects, or one object after the other, of
// which each names its account.
func parseParked(output []byte) (map[string]bool, error) {
	accounts := map[string]bool{}
	type entry struct {
		Account string `json:"account"`
	}
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return accounts, nil
		} else if err != nil {
			return nil, err
		}
		var entries []entry
		if err := json.Unmarshal(raw, &entries); err != nil {
			var one entry
			if json.Unmarshal(raw, &one) != nil {
				return nil, err
			}
			entries = append(entries, one)
		}
		for _, e := range entries {
			if e.Account == "" {
				return nil, fmt.Errorf("an entry without an account: %s", raw)
			}
			accounts[e.Account] = true
		}
	}
}
