package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// gate stops one Commit before it reaches Spanner.
type gate struct {
	armed   atomic.Bool
	reached chan struct{} // closed once a Commit stands at the gate
	open    chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) option() option.ClientOption {
	return onCommit(func(commit func() error) error {
		if g.armed.CompareAndSwap(true, false) {
			close(g.reached)
			<-g.open
		}
		return commit()
	})
}

// attempt returns the sync of attempt n of one run, called at(seconds).
func attempt(run string, n int32, seconds int) Sync {
	sync := called(seconds, fmt.Sprintf(`{"v":%d}`, seconds))
	sync.SyncID, sync.Attempt = run, n
	return sync
}

// Two attempts of one run, in two processes. The first has read the row, decided
// and is about to commit when its process is suspended; the second calls later,
// writes and reports. Then the first wakes up.
func TestAnAttemptThatWakesLateChangesNothing(t *testing.T) {
	for name, second := range map[string]Sync{
		"the next attempt of the run":     attempt("run", 2, 20),
		"the run that continued it":       attempt("next run", 1, 20),
		"the run of an operator's reset":  attempt("reset run", 1, 20),
		"one that found the account gone": {Account: "a", SyncID: "run", Attempt: 2, CalledAt: at(20), Deleted: true, UpstreamStatus: 404},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			sleeper := ready(t, nil, g.option())
			other := reopen(t, sleeper.cfg)
			require.NoError(t, other.Check(t.Context()))
			write(t, sleeper, attempt("earlier run", 1, 1))

			g.armed.Store(true)
			outcome := make(chan contract.Outcome, 1)
			go func() {
				o, err := sleeper.Write(t.Context(), attempt("run", 1, 10))
				if err != nil {
					t.Error(err)
				}
				outcome <- o
			}()
			<-g.reached
			// The emulator has one transaction at a time, and takes it away from
			// the sleeper, as Spanner does with the lock of one that is idle.
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := other.Write(ctx, second)
				return err == nil
			}, 30*time.Second, time.Millisecond)
			before, err := other.Read(t.Context(), "a")
			require.NoError(t, err)
			close(g.open)
			require.Equal(t, contract.OutcomeFenced, <-outcome)
			after, err := other.Read(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, before, after, "not even its commit time has changed")
			require.True(t, after.CalledAt.Equal(at(20)))
			require.Equal(t, second.Deleted, after.Deleted)
			require.Contains(t, logged(t, other), "fenced", "the call was made, so it is on record")
		})
	}
}

// Faults of every kind on commits that come through and on commits that do not,
// with four writers in two processes: the newest call wins, nothing is logged
// twice, and what a writer is told is what the log says.
func TestFaultsUnderConcurrency(t *testing.T) {
	var commits atomic.Int64
	faults := onCommit(func(commit func() error) error {
		n := commits.Add(1)
		switch n % 7 {
		case 1:
			return status.Error(codes.Aborted, "before")
		case 3:
			return status.Error(codes.Unavailable, "before")
		}
		err := commit()
		if err == nil {
			switch n % 7 {
			case 2:
				return status.Error(codes.DeadlineExceeded, "the answer was lost")
			case 5:
				return status.Error(codes.Internal, "the answer was lost")
			}
		}
		return err
	})
	first := ready(t, nil, faults)
	second := reopen(t, first.cfg, faults)
	require.NoError(t, second.Check(t.Context()))
	const calls = 32
	var mu sync.Mutex
	told := map[string]contract.Outcome{}
	var wg sync.WaitGroup
	for w := range 4 {
		writer := []*Store{first, second}[w%2]
		wg.Go(func() {
			for i := w; i < calls; i += 4 {
				sync := attempt(fmt.Sprint("run ", i), 1, (i*13)%calls) // in no order
				deadline := time.Now().Add(time.Minute)
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					outcome, err := writer.Write(ctx, sync)
					cancel()
					if err == nil {
						mu.Lock()
						told[sync.SyncID] = outcome
						mu.Unlock()
						break
					}
					if time.Now().After(deadline) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, told, calls)
	row, err := first.Read(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, row.CalledAt.Equal(at(calls-1)))
	require.Equal(t, fmt.Sprintf(`{"v":%d}`, calls-1), cell[string](t, first, "Payload"))
	outcomes := logged(t, first)
	require.Len(t, outcomes, calls, "each call once")
	count := map[string]int{}
	for _, o := range outcomes {
		count[o]++
	}
	for _, o := range told {
		count[string(o)]--
	}
	for o, n := range count {
		require.Zero(t, n, o)
	}
	t.Log(commits.Load(), "commits for", calls, "writes")
}

// sessions lets a server forget the sessions that it has seen so far.
type sessions struct {
	mu        sync.Mutex
	seen      map[string]bool
	forgotten map[string]bool
	refused   int
}

func (s *sessions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten, s.seen = s.seen, map[string]bool{}
}

// check returns what Spanner says to a request in a session that is gone.
func (s *sessions) check(req any) error {
	in, ok := req.(interface{ GetSession() string })
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.forgotten[in.GetSession()] {
		s.seen[in.GetSession()] = true
		return nil
	}
	s.refused++
	st := status.New(codes.NotFound, "Session not found: "+in.GetSession())
	st, err := st.WithDetails(&errdetails.ResourceInfo{ResourceType: "type.googleapis.com/google.spanner.v1.Session", ResourceName: in.GetSession()})
	if err != nil {
		return err
	}
	return st.Err()
}

func (s *sessions) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if err := s.check(req); err != nil {
				return err
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		})),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil {
				return nil, err
			}
			return &sessionStream{ClientStream: stream, sessions: s}, nil
		})),
	}
}

type sessionStream struct {
	grpc.ClientStream
	sessions *sessions
	err      error
}

func (s *sessionStream) SendMsg(m any) error {
	if s.err = s.sessions.check(m); s.err != nil {
		return nil // the server's answer comes with RecvMsg
	}
	return s.ClientStream.SendMsg(m)
}

func (s *sessionStream) RecvMsg(m any) error {
	if s.err != nil {
		return s.err
	}
	return s.ClientStream.RecvMsg(m)
}

// Spanner deletes sessions now and then. A store must get over that by itself:
// there is nobody to restart the worker.
func TestLostSessions(t *testing.T) {
	lost := &sessions{seen: map[string]bool{}}
	s := ready(t, nil, lost.options()...)
	write(t, s, called(1, `{"v":1}`))
	lost.forget()

	begin := time.Now()
	within := func(do func(ctx context.Context) error) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := do(ctx)
		if err != nil {
			require.ErrorIs(t, err, ErrUnavailable, "an outage, for everybody")
			t.Log(time.Since(begin), err)
		}
		return err == nil
	}
	require.Eventually(t, func() bool {
		return within(func(ctx context.Context) error { _, err := s.Read(ctx, "a"); return err })
	}, 20*time.Second, 100*time.Millisecond)
	lost.forget()
	require.Eventually(t, func() bool {
		return within(func(ctx context.Context) error { _, err := s.Write(ctx, called(2, `{"v":2}`)); return err })
	}, 20*time.Second, 100*time.Millisecond)
	require.Equal(t, `{"v":2}`, cell[string](t, s, "Payload"))
	require.Positive(t, lost.refused)
}
