package dispatch

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Config says how changes are handed to Temporal.
type Config struct {
	Executors      int           `env:"EXECUTORS" help:"Lanes that signal Temporal, each one account at a time."`
	Linger         time.Duration `env:"LINGER" help:"How long an account's first change waits for company before it is signalled."`
	SignalInterval time.Duration `env:"SIGNAL_INTERVAL" help:"Least time between two signals of one account; grows to 2% of how long their run has been open."`
	SignalTimeout  time.Duration `env:"SIGNAL_TIMEOUT" help:"Longest that one request to Temporal may take."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{Executors: 64, Linger: 100 * time.Millisecond, SignalInterval: time.Second, SignalTimeout: 2 * time.Second}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	fault := func(name, value, problem string) {
		faults = append(faults, config.Fault{Name: name, Value: value, Problem: problem})
	}
	if c.Executors < 1 {
		fault("EXECUTORS", strconv.Itoa(c.Executors), "must be at least 1")
	}
	if c.Linger < 0 {
		fault("LINGER", c.Linger.String(), "must not be negative")
	}
	if c.SignalInterval < 10*time.Millisecond {
		fault("SIGNAL_INTERVAL", c.SignalInterval.String(), "must be at least 10ms")
	}
	if c.SignalTimeout < 10*time.Millisecond {
		fault("SIGNAL_TIMEOUT", c.SignalTimeout.String(), "must be at least 10ms")
	}
	return errors.Join(faults...)
}

// Runs signals and starts account runs. [run.Client] implements it.
type Runs interface {
	Signal(ctx context.Context, workflowID, requestID string, changes contract.Changes) (runID string, err error)
	SignalWithStart(ctx context.Context, workflowID, account, requestID string, changes contract.Changes, delay time.Duration) (runID string, started bool, err error)
	Start(ctx context.Context, workflowID, runID string) (run.Start, error)
}

// Room is what changes take up until they are durable. [buffer.Buffer]
// implements it.
type Room interface {
	Join(c buffer.Change)
	Release(c buffer.Change)
	ReleaseJoined(c buffer.Change)
}

// Deps is what a Dispatcher works with. All of it is needed.
type Deps struct {
	Pipeline string
	Settings contract.Settings // travels with every signal
	Runs     Runs
	Watch    func(watch.Target) (forget func())
	Buffer   Room
	Refuse   func(c buffer.Change, why string) // the change cannot be signalled
	Turn     func(lane int)                    // a lane has gone round
	Logger   *slog.Logger
	Metrics  telemetry.Metrics
}

// Dispatcher hands changes to Temporal. Create it with [New].
type Dispatcher struct {
	Deps
	config Config
	seed   maphash.Seed
	lanes  []*lane

	// When Temporal last took a signal, and when one that may start a run, in Unix
	// nanoseconds.
	accepted, started atomic.Int64

	mu        sync.Mutex
	complains time.Time // when the next refusal is logged
	silenced  int       // refusals not logged since
}

// New returns a Dispatcher whose lanes are idle until Run.
func New(config Config, deps Deps) *Dispatcher {
	d := &Dispatcher{Deps: deps, config: config, seed: maphash.MakeSeed()}
	for i := range config.Executors {
		d.lanes = append(d.lanes, newLane(d, i))
	}
	return d
}

// Submit takes a change over. It never blocks; how many changes are under way is
// bounded where they are admitted.
func (d *Dispatcher) Submit(c buffer.Change) {
	lane := d.lanes[maphash.String(d.seed, c.Account)%uint64(len(d.lanes))]
	lane.submit(c)
}

// Run works until ctx is done and returns once every lane has stopped. A request
// under way is given up: a change whose signal has no answer yet is not done,
// and will be delivered again.
func (d *Dispatcher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, lane := range d.lanes {
		group.Go(func() error { return lane.run(ctx) })
	}
	group.Go(func() error { return d.report(ctx) })
	return group.Wait()
}

// Status is what the lanes are doing.
type Status struct {
	Lanes        int     `json:"lanes"`
	Busy         int     `json:"busy"`
	Accounts     int     `json:"accounts"` // with something under way, or lately
	OldestSecond float64 `json:"oldest_seconds"`
	// LastError is the latest error of Temporal, empty once a request succeeded.
	LastError string `json:"last_error,omitempty"`
}

// Status returns what the lanes are doing now.
func (d *Dispatcher) Status() Status {
	status := Status{Lanes: len(d.lanes)}
	now := time.Now()
	for _, lane := range d.lanes {
		lane.mu.Lock()
		status.Accounts += lane.open
		if !lane.busySince.IsZero() {
			status.Busy++
		}
		if !lane.waitingSince.IsZero() {
			status.OldestSecond = max(status.OldestSecond, now.Sub(lane.waitingSince).Seconds())
		}
		if lane.lastError != "" {
			status.LastError = lane.lastError
		}
		lane.mu.Unlock()
	}
	return status
}

// complainEvery is how often it is logged that Temporal does not take changes:
// when it is away, every lane says so all the time.
const complainEvery = 10 * time.Second

func (d *Dispatcher) complain(a *account, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if now.Before(d.complains) {
		d.silenced++
		return
	}
	d.Logger.Warn("Temporal did not take changes; trying again",
		"account", a.key, "tries", a.retries, "error", err, "not_logged", d.silenced)
	d.complains, d.silenced = now.Add(complainEvery), 0
}

func (d *Dispatcher) report(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			status := d.Status()
			d.Metrics.Gauge("bridge.lanes_busy", float64(status.Busy))
			d.Metrics.Gauge("bridge.lane_oldest_seconds", status.OldestSecond)
		}
	}
}
