package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// noEmulator says why the tests against the emulator are skipped.
var noEmulator error

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv(emulator.HostVariable) != "" {
			return m.Run()
		}
		path, err := emulator.Find(context.Background())
		if errors.Is(err, emulator.ErrNotFound) {
			noEmulator = err
			return m.Run()
		}
		running, err := emulator.Start(context.Background(), path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer running.Stop()
		if err := os.Setenv(emulator.HostVariable, running.Host); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

var databases atomic.Int64

// empty returns a Store on a new database without tables.
func empty(t *testing.T, edit func(*Config), options ...option.ClientOption) *Store {
	t.Helper()
	if noEmulator != nil {
		t.Skip(noEmulator)
	}
	cfg := Default()
	cfg.Database = fmt.Sprintf("projects/test/instances/test/databases/d%d-%d", time.Now().UnixNano()%1e12, databases.Add(1))
	if edit != nil {
		edit(&cfg)
	}
	require.NoError(t, cfg.Validate())
	require.NoError(t, emulator.CreateDatabase(t.Context(), cfg.Database))
	return reopen(t, cfg, options...)
}

func reopen(t *testing.T, cfg Config, options ...option.ClientOption) *Store {
	t.Helper()
	s, err := Open(context.Background(), cfg, options...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// ready returns a Store on a new, migrated database.
func ready(t *testing.T, edit func(*Config), options ...option.ClientOption) *Store {
	t.Helper()
	s := empty(t, edit, options...)
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()))
	return s
}

// onCommit returns an option that calls f around every Commit.
func onCommit(f func(commit func() error) error) option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		next := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
		if method != "/google.spanner.v1.Spanner/Commit" {
			return next()
		}
		return f(next)
	}))
}

var base = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return base.Add(time.Duration(seconds) * time.Second) }

// change returns a range of one change at an offset, at(offset).
func change(partition int32, offset int64) contract.Range {
	p := contract.Position{Offset: offset}
	return contract.Range{
		Source: contract.Source{TopicID: contract.TopicID{1}, Topic: "t", Partition: partition},
		First:  p, Last: p, Count: 1, Oldest: at(int(offset)), Newest: at(int(offset)),
	}
}

// called returns a sync whose call started at(seconds).
func called(seconds int, payload string) Sync {
	return Sync{
		Account: "a", SyncID: fmt.Sprint("run ", seconds), Attempt: 1, CalledAt: at(seconds), Payload: []byte(payload),
		Covered: []contract.Range{change(0, int64(seconds))}, UpstreamStatus: 200, UpstreamDuration: 12 * time.Millisecond,
	}
}

func write(t *testing.T, s *Store, sync Sync) contract.Outcome {
	t.Helper()
	outcome, err := s.Write(t.Context(), sync)
	require.NoError(t, err)
	return outcome
}

// logged returns the outcomes in the sync log, oldest first.
func logged(t *testing.T, s *Store) []string {
	t.Helper()
	var outcomes []string
	require.NoError(t, s.Client().Single().Query(t.Context(), spanner.NewStatement("SELECT Outcome FROM `"+s.cfg.SyncsTable+"` ORDER BY SyncedAt, SyncId")).Do(func(r *spanner.Row) error {
		var o string
		err := r.Column(0, &o)
		outcomes = append(outcomes, o)
		return err
	}))
	return outcomes
}

// cell returns a column of account a's row.
func cell[T any](t *testing.T, s *Store, column string) T {
	t.Helper()
	var v T
	r, err := s.Client().Single().ReadRow(t.Context(), s.cfg.AccountsTable, spanner.Key{"a"}, []string{column})
	require.NoError(t, err)
	require.NoError(t, r.Column(0, &v))
	return v
}
