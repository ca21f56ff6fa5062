package load

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/internal/config"
)

// first returns the events of the first span of the traffic.
func first(events iter.Seq[Event], span time.Duration) []Event {
	var taken []Event
	for e := range events {
		if e.After > span {
			break
		}
		taken = append(taken, e)
	}
	return taken
}

func TestEventsAreOrderedAndRepeatable(t *testing.T) {
	cfg := Default()
	events := first(cfg.Events(), time.Minute)
	if !slices.IsSortedFunc(events, func(a, b Event) int { return int(a.After - b.After) }) {
		t.Error("not in the order of times")
	}
	if !slices.Equal(events, first(cfg.Events(), time.Minute)) {
		t.Error("the same seed gives other events")
	}
	cfg.Seed++
	if slices.Equal(events, first(cfg.Events(), time.Minute)) {
		t.Error("another seed gives the same events")
	}
}

func TestEventsKeepTheRate(t *testing.T) {
	for _, rate := range []float64{0.5, 16, 200} {
		cfg := Config{Accounts: 1000, Rate: rate, Seed: 1}
		span := time.Duration(4000/rate) * time.Second
		if n := len(first(cfg.Events(), span)); n < 3600 || n > 4400 {
			t.Errorf("rate %v: %d changes where 4000 are due", rate, n)
		}
	}
}

// TestDefaultStaysBelowTwelveSyncsPerSecond holds the default traffic to what
// an embedded Temporal server can do.
func TestDefaultStaysBelowTwelveSyncsPerSecond(t *testing.T) {
	const span = 10 * time.Minute
	byAccount := map[string][]time.Time{}
	for _, e := range first(Default().Events(), span) {
		byAccount[e.Account] = append(byAccount[e.Account], time.Unix(0, 0).Add(e.After))
	}
	changes, calls := 0, 0
	for _, times := range byAccount {
		changes += len(times)
		calls += check.Optimum(times, 2050*time.Millisecond, 3*time.Second)
	}
	if rate := float64(calls) / span.Seconds(); rate > 12 || rate < 8 {
		t.Errorf("%.1f syncs/s for %d changes", rate, changes)
	}
	if saved := check.SavedRatio(changes, calls); saved < 0.3 {
		t.Errorf("coalescing saves %v: the demo would show little", saved)
	}
}

func TestHotAccountGetsItsShare(t *testing.T) {
	count := func(hot float64) int {
		events := first(Config{Accounts: 100, Rate: 50, Seed: 3, Hot: hot}.Events(), time.Minute)
		return len(slices.DeleteFunc(events, func(e Event) bool { return e.Account != "account-0" })) * 100 / 3000
	}
	if cold, half := count(0), count(0.5); cold > 3 || half < 40 || half > 62 {
		t.Errorf("account-0 has %d%% without and %d%% with half of all bursts", cold, half)
	}
}

func TestValidateNamesAllFaults(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{Accounts: 0, Rate: -1, Hot: 2}.Validate()
	var fault config.Fault
	if !errors.As(err, &fault) || fault.Name != "accounts" {
		t.Errorf("error %v", err)
	}
	for _, name := range []string{"accounts=0", "rate=-1", "hot=2"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

func TestEveryChangeHasItsRecord(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	simulator := upstream.New(upstream.Config{})
	generator := New(Config{Accounts: 5, Rate: 2000, Seed: 1}, simulator, client, "changes")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := generator.Run(ctx); err != nil {
		t.Fatal(err)
	}
	changes := generator.Changes()
	if len(changes) < 100 {
		t.Fatalf("only %d changes", len(changes))
	}
	want := map[string]string{}
	latest := map[string]int64{}
	for _, c := range changes {
		want[fmt.Sprintf("%d/%d", c.Partition, c.Offset)] = c.Account
		if c.Version != latest[c.Account]+1 {
			t.Errorf("%s: version %d after %d", c.Account, c.Version, latest[c.Account])
		}
		latest[c.Account] = c.Version
	}
	for account, version := range simulator.Truth() {
		if latest[account] != version {
			t.Errorf("%s: truth is %d, told of %d", account, version, latest[account])
		}
	}
	if len(want) != len(changes) {
		t.Errorf("%d changes at %d places", len(changes), len(want))
	}
	for n := 0; n < len(changes); {
		fetches := client.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) {
			place := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
			if want[place] != string(r.Key) {
				t.Errorf("record at %s has key %s, want %q", place, r.Key, want[place])
			}
			n++
		})
	}
}

func TestChangeThatCannotBeToldOfIsAnError(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "changes"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchMaxBytes(1024))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	generator := New(Config{Accounts: 1, Rate: 100, Seed: 1}, upstream.New(upstream.Config{}), client, "changes")
	generator.Change(t.Context(), strings.Repeat("x", 4096)) // larger than a batch may be
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := generator.Run(ctx); err == nil {
		t.Error("no error")
	}
}
