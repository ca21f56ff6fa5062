package dispatch_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// temporal is Temporal as far as the bridge sees it. Runs end when a test ends
// them.
type temporal struct {
	t *testing.T

	mu      sync.Mutex
	open    map[string]*execution // by workflow ID
	all     map[string]*execution // by run ID
	signals []delivered
	started int
	woken   int // signal-with-start that met an open run
	reads   int // of start events
	fail    func(workflowID string) error
	refuse  func(contract.Changes) error
	// refuseStart refuses runs that would be started.
	refuseStart func(workflowID string) error
}

type delivered struct {
	at      time.Time
	account string
	contract.Changes
}

type execution struct {
	start   run.Start
	pending []contract.Range
	end     *run.End
	ended   chan struct{}
}

func newTemporal(t *testing.T) *temporal {
	return &temporal{t: t, open: map[string]*execution{}, all: map[string]*execution{}}
}

func (f *temporal) begin(workflowID string, start run.Start) *execution {
	start.RunID = fmt.Sprintf("run-%d", len(f.all)+1)
	e := &execution{start: start, pending: start.Input.Pending, ended: make(chan struct{})}
	f.open[workflowID], f.all[start.RunID] = e, e
	return e
}

func (f *temporal) take(e *execution, workflowID string, changes contract.Changes) {
	e.pending = append(e.pending, changes.Ranges...)
	f.signals = append(f.signals, delivered{time.Now(), workflowID, changes})
}

func (f *temporal) failure(ctx context.Context, workflowID string, changes contract.Changes) error {
	f.mu.Lock()
	fail, refuse := f.fail, f.refuse
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(changes); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if fail != nil {
		return fail(workflowID)
	}
	return nil
}

func (f *temporal) Signal(ctx context.Context, workflowID, _ string, changes contract.Changes) (string, error) {
	if err := f.failure(ctx, workflowID, changes); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.open[workflowID]
	if e == nil {
		return "", run.ErrNotRunning
	}
	f.take(e, workflowID, changes)
	return e.start.RunID, nil
}

func (f *temporal) SignalWithStart(ctx context.Context, workflowID, account, _ string, changes contract.Changes, delay time.Duration) (string, bool, error) {
	if err := f.failure(ctx, workflowID, changes); err != nil {
		return "", false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuseStart != nil {
		if err := f.refuseStart(workflowID); err != nil {
			return "", false, err
		}
	}
	e, running := f.open[workflowID]
	if running {
		f.woken++
	} else {
		f.started++
		e = f.begin(workflowID, run.Start{
			Due:   time.Now().Add(delay),
			Input: contract.AccountSyncInput{Account: account, Settings: changes.Settings},
		})
	}
	f.take(e, workflowID, changes)
	return e.start.RunID, !running, nil
}

func (f *temporal) Start(ctx context.Context, workflowID, runID string) (run.Start, error) {
	if err := f.failure(ctx, workflowID, contract.Changes{}); err != nil {
		return run.Start{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	e := f.all[runID]
	if e == nil {
		return run.Start{}, run.ErrGone
	}
	return e.start, nil
}

func (f *temporal) End(ctx context.Context, _, runID string, wait bool) (*run.End, error) {
	f.mu.Lock()
	e := f.all[runID]
	f.mu.Unlock()
	if e == nil {
		return nil, run.ErrGone
	}
	if wait {
		select {
		case <-e.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Second):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return e.end, nil
}

// finish ends the account's open run in the way that decide says, given what is
// pending in it.
func (f *temporal) finish(workflowID string, decide func(pending []contract.Range) run.End) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.open[workflowID]
	if e == nil {
		f.t.Fatalf("no open run of %s", workflowID)
	}
	delete(f.open, workflowID)
	end := decide(e.pending)
	if end.Next != nil {
		next := f.begin(workflowID, *end.Next)
		end.Next = &next.start
	}
	e.end = &end
	close(e.ended)
}

// complete ends the run with everything covered.
func complete(pending []contract.Range) run.End { return run.End{Covered: pending} }

// bridge is a Dispatcher with a real Watcher, ledger and buffer around it.
type bridge struct {
	*dispatch.Dispatcher
	temporal   *temporal
	watcher    *watch.Watcher
	ledger     *ledger.Ledger
	buffer     *buffer.Buffer
	assignment *ledger.Assignment
	refused    []buffer.Change
	next       int64
}

var source = contract.Source{TopicID: contract.TopicID{1}, Topic: "accounts"}

var settings = contract.Settings{
	Settle: contract.Duration(20 * time.Second), Delay: contract.Duration(30 * time.Second), ParkAfter: 5,
}

// broken ends the run without a result.
func broken([]contract.Range) run.End { return run.End{Broken: "Terminated"} }

func (f *temporal) isOpen(workflowID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[workflowID] != nil
}

// ids returns the workflows that have an open run.
func (f *temporal) ids() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := map[string]bool{}
	for id := range f.open {
		ids[id] = true
	}
	return ids
}

// pass lets time pass and then waits until everybody waits, so that what they
// have written may be read. For the test's own goroutine.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBridge runs test in a bubble with a running bridge of two lanes.
func inBridge(t *testing.T, test func(t *testing.T, b *bridge)) {
	t.Helper()
	inBridgeOf(t, buffer.DefaultConfig(), test)
}

// inBridgeOf is inBridge with other bounds.
func inBridgeOf(t *testing.T, bounds buffer.Config, test func(t *testing.T, b *bridge)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bridge{temporal: newTemporal(t), ledger: ledger.New()}
		b.buffer = buffer.New(bounds, b.ledger)
		b.assign(0)
		logger := slog.New(slog.DiscardHandler)
		b.watcher = watch.New(watch.DefaultConfig(), b.temporal, logger, func() {})
		config := dispatch.DefaultConfig()
		config.Executors = 2
		b.Dispatcher = dispatch.New(config, dispatch.Deps{
			Pipeline: "crm", Settings: settings, Runs: b.temporal, Watch: b.watcher.Add,
			Buffer: b.buffer,
			Refuse: func(c buffer.Change, _ string) {
				b.refused = append(b.refused, c)
				c.Assignment.Done(c.Position)
			},
			Turn: func(int) {}, Logger: logger, Metrics: telemetry.Discard,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = b.Run(ctx) })
		group.Go(func() { _ = b.watcher.Run(ctx) })
		test(t, b)
		cancel()
		group.Wait()
	})
}

func (b *bridge) assign(next int64) {
	b.next = next
	b.assignment = b.ledger.Assign(ledger.Start{Source: source, Next: contract.Position{Epoch: -1, Offset: next}})
}

// change admits and submits a change of the account, as the consumer does.
func (b *bridge) change(t *testing.T, account string) {
	t.Helper()
	b.changeTo(t, account, contract.Version{})
}

func (b *bridge) changeTo(t *testing.T, account string, version contract.Version) {
	t.Helper()
	b.submit(t, buffer.Change{Account: account, Time: time.Now(), Version: version})
}

func (b *bridge) submit(t *testing.T, c buffer.Change) {
	t.Helper()
	c.Source, c.Position, c.Assignment = source, contract.Position{Offset: b.next}, b.assignment
	b.next++
	if !b.buffer.Gate(b.assignment).Admit(c.Size(), 1) {
		t.Fatal("not admitted")
	}
	b.assignment.See(c.Position, c.Time)
	b.Submit(c)
}

func (b *bridge) watermark() int64 { return b.assignment.State().Watermark }

func (b *bridge) held() int {
	records, _ := b.buffer.Held()
	return records
}
