package activities

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const (
	settle = 20 * time.Second
	delay  = 30 * time.Second
)

// fixture is a worker with a fake store. Its server clock begins at server,
// whatever the worker's own says.
type fixture struct {
	*testing.T
	cfg     Config
	server  time.Time // the server's time when the attempt starts
	attempt int32
	stop    chan struct{} // closed: the worker is stopping
	ended   context.Context
	cancel  func() // ends the attempt's context
	store   *fakeStore
	real    Store // instead of it
	runID   string
	fetch   func(ctx context.Context, account string) (upstream.Response, error)
	health  *health.Monitor
	metrics *recorder

	mu    sync.Mutex
	calls []time.Time // by the worker's wall clock
	beats int
	mute  bool // Temporal does not answer heartbeats
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{
		T: t, cfg: DefaultConfig(), server: time.Now(), attempt: 1, runID: "run", stop: make(chan struct{}),
		store: &fakeStore{rows: map[string]store.Row{}}, metrics: &recorder{counts: map[string]int64{}, timings: map[string]time.Duration{}},
	}
	f.fetch = func(context.Context, string) (upstream.Response, error) {
		return upstream.Response{Status: 200, Body: []byte(`{}`)}, nil
	}
	f.ended, f.cancel = context.WithCancel(context.Background())
	f.budget(1000)
	return f
}

func (f *fixture) budget(rps int) {
	fleet := budget.NewFleet(budget.Config{UpstreamRPS: rps}, &granter{state: allot.New(time.Now().Add(-contract.ShareTTL))}, f.metrics, discard())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = fleet.Run(ctx) })
	f.Cleanup(func() { cancel(); wg.Wait() })
	if rps > 0 {
		p, err := fleet.Acquire(ctx) // the first share is there
		require.NoError(f, err)
		p.Release()
	}
	f.health = health.NewMonitor(fleet, discard())
}

// granter is the budget's workflow, for one worker that always gets all.
type granter struct {
	mu    sync.Mutex
	state *contract.BudgetState
}

func (g *granter) Renew(_ context.Context, r contract.ShareRequest) (contract.Share, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.state.Breaker.Open {
		r.Demand = budget.MaxRPS
	}
	return allot.Renew(g.state, time.Now(), r)
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Fetch counts calls.
func (f *fixture) Fetch(ctx context.Context, account string) (upstream.Response, error) {
	f.mu.Lock()
	f.calls = append(f.calls, time.Now())
	f.mu.Unlock()
	return f.fetch(ctx, account)
}

// run executes Sync in Temporal's test environment.
func (f *fixture) run(in contract.SyncInput) (contract.SyncResult, error) {
	f.Helper()
	var kept Store = f.store
	if f.real != nil {
		kept = f.real
	}
	a := New(f.cfg, Dependencies{Upstream: f, Store: kept, Health: f.health, Metrics: f.metrics, Log: discard()})
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(slogAdapter{})
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&infoInterceptor{fixture: f}}})
	env.SetWorkerStopChannel(f.stop)
	env.SetTestTimeout(time.Hour)
	a.Register(env)
	value, err := env.ExecuteActivity(contract.Sync, in)
	var result contract.SyncResult
	if err == nil {
		require.NoError(f, value.Get(&result))
	}
	return result, err
}

// deferral returns after what time the attempt wants to come again.
func (f *fixture) deferral(err error) time.Duration {
	f.Helper()
	var e *temporal.ApplicationError
	require.ErrorAs(f, err, &e)
	require.Equal(f, contract.ErrorDeferred, e.Type(), e.Error())
	require.False(f, e.NonRetryable())
	require.Positive(f, e.NextRetryDelay())
	return e.NextRetryDelay()
}

// failure returns what the failed attempt says.
func (f *fixture) failure(err error) contract.FailedAttempt {
	f.Helper()
	var e *temporal.ApplicationError
	require.ErrorAs(f, err, &e)
	require.Equal(f, contract.ErrorFailed, e.Type(), e.Error())
	require.True(f, e.NonRetryable())
	var failed contract.FailedAttempt
	require.NoError(f, e.Details(&failed))
	require.NotContains(f, e.Error(), "secret-account")
	return failed
}

// changed returns a pending change that the server's clock saw ago.
func (f *fixture) changed(ago time.Duration, offset int64) contract.Range {
	p, at := contract.Position{Offset: offset}, f.server.Add(-ago).UTC()
	return contract.Range{Source: contract.Source{TopicID: contract.TopicID{1}, Topic: "t"}, First: p, Last: p, Count: 1, Oldest: at, Newest: at}
}

func (f *fixture) input(pending ...contract.Range) contract.SyncInput {
	return contract.SyncInput{
		Account: "secret-account", Pending: pending, NotBefore: contract.FirstChange(pending).Add(delay),
		Settings: contract.Settings{Settle: contract.Duration(settle), Delay: contract.Duration(delay), Heartbeat: contract.Duration(3 * time.Second)},
	}
}

// infoInterceptor puts the server's clock into the activity's info, as a server
// whose clock is not the worker's would.
type infoInterceptor struct {
	interceptor.WorkerInterceptorBase
	fixture *fixture
}

func (i *infoInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &inbound{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, fixture: i.fixture}
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
	fixture *fixture
}

func (i *inbound) Init(out interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&outbound{ActivityOutboundInterceptorBase: interceptor.ActivityOutboundInterceptorBase{Next: out}, fixture: i.fixture})
}

// ExecuteActivity runs the attempt in a context that the test can end.
func (i *inbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(i.fixture.ended, cancel)()
	return i.Next.ExecuteActivity(ctx, in)
}

type outbound struct {
	interceptor.ActivityOutboundInterceptorBase
	fixture *fixture
}

func (o *outbound) GetInfo(ctx context.Context) activity.Info {
	info := o.Next.GetInfo(ctx)
	info.StartedTime, info.Attempt, info.WorkflowExecution.RunID = o.fixture.server, o.fixture.attempt, o.fixture.runID
	return info
}

func (o *outbound) RecordHeartbeat(ctx context.Context, _ ...any) {
	o.fixture.mu.Lock()
	o.fixture.beats++
	mute := o.fixture.mute
	o.fixture.mu.Unlock()
	if mute {
		<-ctx.Done()
	}
}

// fakeStore fences like the real one. Its faults are called first.
type fakeStore struct {
	mu       sync.Mutex
	rows     map[string]store.Row
	syncs    []store.Sync // committed
	readErr  func() error
	discards []store.Discard

	unsettled []store.Sync
	late      []contract.Range // what they lacked

	writeErr func() error // instead of the write
	lostErr  func() error // after it
}

func (s *fakeStore) Read(ctx context.Context, account string) (store.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil {
		return store.Row{}, s.readErr()
	}
	return s.rows[account], ctx.Err()
}

func (s *fakeStore) Write(ctx context.Context, w store.Sync) (contract.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if s.writeErr != nil {
		if err := s.writeErr(); err != nil {
			return "", err
		}
	}
	row := s.rows[w.Account]
	if row.SyncID == w.SyncID && row.Attempt == w.Attempt {
		return contract.OutcomeWritten, nil
	}
	if row.CalledAt.After(w.CalledAt) {
		return contract.OutcomeFenced, nil
	}
	s.rows[w.Account] = store.Row{
		CalledAt: w.CalledAt, Through: contract.Advance(row.Through, w.Covered, w.Pending),
		SyncID: w.SyncID, Attempt: w.Attempt, Deleted: w.Deleted, Version: w.Version,
	}
	s.syncs = append(s.syncs, w)
	if s.lostErr != nil {
		if err := s.lostErr(); err != nil {
			return "", err
		}
	}
	if w.Deleted {
		return contract.OutcomeDeleted, nil
	}
	return contract.OutcomeWritten, nil
}

func (s *fakeStore) Unsettled(_ context.Context, w store.Sync, late []contract.Range) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled = append(s.unsettled, w)
	s.late = append(s.late, late...)
	return errOut // it is a log, and nothing depends on it
}

func (s *fakeStore) Discard(_ context.Context, d store.Discard) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		if err := s.writeErr(); err != nil {
			return err
		}
	}
	s.discards = append(s.discards, d)
	return nil
}

var errOut = &store.Error{Op: "test", Kind: store.ErrUnavailable, Reason: "Unavailable", Err: errors.New("secret-account is out")}

// recorder remembers metrics.
type recorder struct {
	mu      sync.Mutex
	counts  map[string]int64
	timings map[string]time.Duration
}

// noAccount panics on a tag that holds the account: series must not grow with the
// number of accounts.
func noAccount(tags []string) {
	for _, tag := range tags {
		if strings.Contains(tag, "secret-account") {
			panic("an account in a tag: " + tag)
		}
	}
}

func (r *recorder) Count(name string, n int64, tags ...string) {
	noAccount(tags)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name] += n
	for _, tag := range tags {
		r.counts[name+" "+tag] += n
	}
}

func (r *recorder) Gauge(string, float64, ...string) {}

func (r *recorder) Timing(name string, d time.Duration, tags ...string) {
	noAccount(tags)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timings[name] = d
	for _, tag := range tags {
		r.timings[name+" "+tag] = d
	}
}

func (r *recorder) all() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

var _ telemetry.Metrics = (*recorder)(nil)

var _ Store = (*store.Store)(nil)

// slogAdapter silences the test environment.
type slogAdapter struct{}

func (slogAdapter) Debug(string, ...any) {}
func (slogAdapter) Info(string, ...any)  {}
func (slogAdapter) Warn(string, ...any)  {}
func (slogAdapter) Error(string, ...any) {}
