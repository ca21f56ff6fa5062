package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// recording is an upstream that remembers who was called.
type recording struct {
	mu       sync.Mutex
	requests int
	answer   func(n int, w http.ResponseWriter)
}

func (r *recording) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	r.requests++
	n, answer := r.requests, r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(n, w)
		return
	}
	_, _ = io.WriteString(w, `{}`)
}

func (r *recording) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// spannerHost starts an emulator for the test, unless there is one.
func spannerHost(t *testing.T) {
	if os.Getenv(emulator.HostVariable) != "" {
		return
	}
	path, err := emulator.Find(t.Context())
	if errors.Is(err, emulator.ErrNotFound) {
		t.Skip(err)
	}
	require.NoError(t, err)
	running, err := emulator.Start(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(running.Stop)
	t.Setenv(emulator.HostVariable, running.Host)
}

// TestWhatIsWrittenIsNotCalledForAgain: with a real store and over HTTP, once a
// call has been written, nothing but a new change leads to another.
func TestWhatIsWrittenIsNotCalledForAgain(t *testing.T) {
	spannerHost(t)
	number := 0
	type world struct {
		*fixture
		upstream *recording
		lose     *atomic.Bool // the answers to commits, which come through
		database *store.Store
	}
	in := func(name string, test func(t *testing.T, w *world)) {
		t.Run(name, func(t *testing.T) {
			number++
			w := &world{fixture: newFixture(t), upstream: &recording{}, lose: &atomic.Bool{}}
			server := httptest.NewServer(w.upstream)
			t.Cleanup(server.Close)
			cfg := upstream.Default()
			cfg.URL = upstream.URL(server.URL + "/{account}")
			client := upstream.New(cfg)
			t.Cleanup(client.Close)
			w.fetch = client.Fetch

			tables := store.Default()
			tables.Database = fmt.Sprintf("projects/test/instances/test/databases/one-call-%d", number)
			require.NoError(t, emulator.CreateDatabase(t.Context(), tables.Database))
			s, err := store.Open(context.Background(), tables, option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					err := invoke(ctx, method, req, reply, cc, opts...)
					if err == nil && method == "/google.spanner.v1.Spanner/Commit" && w.lose.Load() {
						return status.Error(codes.DeadlineExceeded, "the answer was lost")
					}
					return err
				})))
			require.NoError(t, err)
			t.Cleanup(s.Close)
			_, err = s.Migrate(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Check(t.Context()))
			w.real, w.database = s, s
			test(t, w)
		})
	}
	skipped := func(t *testing.T, w *world, input contract.SyncInput) {
		t.Helper()
		before := w.upstream.calls()
		result, err := w.run(input)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeSkipped, result.Outcome)
		covered, pending := contract.SplitAt(input.Pending, result.CalledAt, result.Version, settle, result.Through)
		require.Empty(t, pending)
		require.NotEmpty(t, covered)
		require.Equal(t, before, w.upstream.calls())
	}
	written := func(t *testing.T, w *world, input contract.SyncInput) {
		t.Helper()
		before := w.upstream.calls()
		result, err := w.run(input)
		require.NoError(t, err)
		require.NotEqual(t, contract.OutcomeSkipped, result.Outcome)
		require.Equal(t, before+1, w.upstream.calls())
	}

	in("crash after the write: the next attempt, and the next run", func(t *testing.T, w *world) {
		input := w.input(w.changed(time.Minute, 1))
		written(t, w, input) // and nobody hears of it
		w.attempt++
		skipped(t, w, input)
		w.runID, w.attempt = "next run", 1
		skipped(t, w, input)
		w.runID = "the same run, reset by an operator"
		skipped(t, w, input)
	})
	in("redelivery: the same changes, arriving later", func(t *testing.T, w *world) {
		written(t, w, w.input(w.changed(time.Minute, 1), w.changed(50*time.Second, 2)))
		w.runID = "another run"
		again := w.input(w.changed(10*time.Second, 1), w.changed(5*time.Second, 2))
		again.NotBefore = w.server
		skipped(t, w, again)
		w.runID = "a run that has a new one, too"
		again.Pending = append(again.Pending, w.changed(time.Minute, 3))
		skipped(t, w, again) // arrived before the call: settled for it, though told late
		again.Pending = append(again.Pending, w.changed(22*time.Second, 4))
		w.server = w.server.Add(time.Minute)
		changed := func(ago time.Duration) {
			again.Pending[3].Oldest, again.Pending[3].Newest = w.server.Add(-ago), w.server.Add(-ago)
		}
		changed(21 * time.Second)
		_, err := w.run(again)
		require.Equal(t, 9*time.Second, w.deferral(err).Round(time.Second), "settled, but not due: what is covered already is no reason to call early")
		changed(31 * time.Second)
		written(t, w, again)
	})
	in("repartition: the account moves to another partition", func(t *testing.T, w *world) {
		old := w.changed(time.Minute, 1)
		written(t, w, w.input(old))
		moved := w.changed(0, 0)
		moved.Source.Partition = 7
		w.server = w.server.Add(time.Minute)
		w.runID = "second run"
		written(t, w, w.input(moved))
		w.runID = "third run"
		skipped(t, w, w.input(old, moved))
		late := moved // the same change, redelivered from where it is now
		late.Oldest, late.Newest = w.server.Add(-time.Second), w.server.Add(-time.Second)
		input := w.input(late)
		input.NotBefore = w.server
		skipped(t, w, input)
	})
	in("failures: each is a call, and the log counts them", func(t *testing.T, w *world) {
		w.upstream.answer = func(n int, w http.ResponseWriter) {
			if n < 3 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, `{}`)
		}
		input := w.input(w.changed(time.Minute, 1))
		for range 2 {
			_, err := w.run(input)
			input.LastFailure = w.failure(err).At
			input.Tries++
			w.runID += "+"
		}
		written(t, w, input)
		w.runID += "+"
		skipped(t, w, input)
		require.Equal(t, 3, w.upstream.calls())
		var tries []int64
		require.NoError(t, w.database.Client().Single().Query(t.Context(), spanner.NewStatement("SELECT Tries FROM AccountSyncs")).Do(func(r *spanner.Row) error {
			tries = append(tries, 0)
			return r.Column(0, &tries[len(tries)-1])
		}))
		require.Equal(t, []int64{3}, tries)
	})
	in("unknown commit outcome, until the attempt gives up", func(t *testing.T, w *world) {
		w.cfg.Lease.Write = time.Second
		w.lose.Store(true)
		input := w.input(w.changed(time.Minute, 1))
		_, err := w.run(input)
		if err != nil { // the client itself may have found out
			require.Equal(t, contract.ClassTransient, w.failure(err).Class)
		}
		w.lose.Store(false)
		w.runID = "next run"
		input.LastFailure = w.server
		skipped(t, w, input)
		require.Equal(t, 1, w.upstream.calls())
	})
	in("gone, gone again, and back", func(t *testing.T, w *world) {
		w.upstream.answer = func(n int, w http.ResponseWriter) {
			if n < 3 {
				w.WriteHeader([]int{http.StatusNotFound, http.StatusGone}[n-1])
				return
			}
			_, _ = io.WriteString(w, `{"back":true}`)
		}
		var deletedAt []time.Time
		for n := range 3 {
			w.runID = fmt.Sprint("run ", n)
			input := w.input(w.changed(time.Minute, int64(n)))
			written(t, w, input)
			skipped(t, w, input) // a tombstone covers like any other row
			row, err := w.database.Read(t.Context(), "secret-account")
			require.NoError(t, err)
			require.Equal(t, n < 2, row.Deleted)
			var at spanner.NullTime
			r, err := w.database.Client().Single().ReadRow(t.Context(), "Accounts", spanner.Key{"secret-account"}, []string{"DeletedAt"})
			require.NoError(t, err)
			require.NoError(t, r.Column(0, &at))
			deletedAt = append(deletedAt, at.Time)
			w.server = w.server.Add(2 * time.Minute)
		}
		require.Equal(t, deletedAt[0], deletedAt[1], "when it was first found gone")
		require.True(t, deletedAt[2].IsZero())
	})
}
