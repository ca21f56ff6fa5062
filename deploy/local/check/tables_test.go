package check_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestReadTables reads rows from tables of the product's own schema.
func TestReadTables(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{
		LogDir: t.TempDir(), Progress: os.Stderr, Database: "check-test",
		Without: []stack.Part{stack.PartTemporal, stack.PartKafka, stack.PartUpstream},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop() //nolint:errcheck
	if s.Spanner.InMemory {
		t.Skip("no emulator is installed")
	}
	cfg := store.Default()
	cfg.Database = s.Spanner.Database
	tables, err := store.Open(ctx, cfg, s.Spanner.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	if _, err := tables.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := s.Spanner.Client(ctx, s.Spanner.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	called := time.Unix(1_800_000_000, 123_456_000).UTC()
	const sources = `[{"source":{"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","topic":"t","partition":3},"first":{"epoch":0,"offset":5},` +
		`"last":{"epoch":0,"offset":6},"count":2,"oldest":"2027-01-15T08:00:00Z","newest":"2027-01-15T08:00:01Z"}]`
	insert := func(table string, values map[string]any) *spanner.Mutation { return spanner.InsertMap(table, values) }
	_, err = client.Apply(ctx, []*spanner.Mutation{
		insert("Accounts", map[string]any{"AccountId": "a", "Payload": `{"version":4}`, "CalledAt": called, "SyncId": "r/1", "SyncedAt": spanner.CommitTimestamp}),
		insert("Accounts", map[string]any{"AccountId": "b", "Payload": nil, "CalledAt": called, "DeletedAt": called, "SyncedAt": spanner.CommitTimestamp}),
		insert("AccountSyncs", map[string]any{"AccountId": "a", "SyncId": "r/1", "SyncedAt": spanner.CommitTimestamp, "CalledAt": called,
			"Changes": 2, "Sources": sources, "Outcome": "written"}),
		insert("AccountSyncs", map[string]any{"AccountId": "b", "SyncId": "r/2", "SyncedAt": spanner.CommitTimestamp}),
	})
	if err != nil {
		t.Fatal(err)
	}

	rows, err := check.ReadRows(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	want := []check.Row{{Account: "a", Version: 4, CalledAt: called, SyncID: "r/1"}, {Account: "b", Deleted: true, CalledAt: called}}
	if !slices.EqualFunc(rows, want, func(a, b check.Row) bool {
		return a.CalledAt.Equal(b.CalledAt) && a.Account == b.Account && a.Version == b.Version && a.Deleted == b.Deleted && a.SyncID == b.SyncID
	}) {
		t.Errorf("rows %+v, want %+v", rows, want)
	}
	syncs, err := check.ReadSyncs(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	if len(syncs) != 2 || syncs[0].Account != "a" || syncs[0].Changes != 2 || syncs[0].Outcome != "written" || len(syncs[0].Ranges) != 1 || len(syncs[1].Ranges) != 0 {
		t.Fatalf("syncs %+v", syncs)
	}
	r := syncs[0].Ranges[0]
	if r.Source.Partition != 3 || r.Last.Offset != 6 || r.Newest.Sub(r.Oldest) != time.Second || syncs[0].SyncedAt.IsZero() {
		t.Errorf("range %+v", r)
	}
	_, err = client.Apply(ctx, []*spanner.Mutation{spanner.InsertMap("AccountSyncs", map[string]any{
		"AccountId": "c", "SyncId": "r/3", "SyncedAt": spanner.CommitTimestamp, "Sources": "{broken"})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.ReadSyncs(ctx, client); err == nil || !strings.Contains(err.Error(), "r/3 of c") {
		t.Errorf("broken sources: %v", err)
	}
}
