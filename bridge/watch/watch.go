package watch

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/bridge/due"
	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/internal/config"
)

// Config bounds what watching costs.
type Config struct {
	Watchers int `env:"WATCHERS" help:"Long polls to Temporal at a time; a frontend allows 1,200 per namespace for all bridges together."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return Config{Watchers: 128} }

// Validate returns every fault.
func (c Config) Validate() error {
	if c.Watchers < 1 {
		return config.Fault{Name: "WATCHERS", Value: strconv.Itoa(c.Watchers), Problem: "must be at least 1"}
	}
	return nil
}

const (
	// readers is how many plain reads run at a time.
	readers = 8
	// pollTimeout is above the 20 seconds for which the server holds a poll.
	pollTimeout = 30 * time.Second
	readTimeout = 5 * time.Second
	// patience is how long a poll keeps its place against a run that falls due.
	patience = time.Second
	// overdueEvery and waitingEvery are how often a run is read that is overdue
	// or not due yet; the latter only to notice that somebody ended it.
	overdueEvery = 2 * time.Second
	waitingEvery = time.Minute
)

// Runs reads how runs end. [run.Client] implements it.
type Runs interface {
	End(ctx context.Context, workflowID, runID string, wait bool) (*run.End, error)
}

// Target is one run to watch.
type Target struct {
	WorkflowID string
	RunID      string
	Due        time.Time // when it is expected to make its call
	// Report is called once, from a goroutine of the Watcher, when the run has
	// ended. It must not block.
	Report func(run.End)
}

// Watcher watches runs until they end. Create it with [New].
type Watcher struct {
	config Config
	runs   Runs
	logger *slog.Logger
	turn   func()

	mu      sync.Mutex
	queue   due.Queue[*watch] // waiting for their turn
	polls   map[*watch]func() // being polled, with what ends the poll
	evicted *watch            // in polls still, but told to make room
	reading int
	open    int
	wake    chan struct{} // capacity 1: a pending wake-up is enough
}

// New returns a Watcher that watches nothing yet. turn is called whenever its
// loop has gone round.
func New(config Config, runs Runs, logger *slog.Logger, turn func()) *Watcher {
	return &Watcher{
		config: config, runs: runs, logger: logger, turn: turn,
		polls: make(map[*watch]func()),
		wake:  make(chan struct{}, 1),
	}
}

// watch is the state of one target.
type watch struct {
	Target
	polledAt time.Time // when the current poll began
	polled   bool      // has had a poll to itself that ended without the run
}

// Add begins to watch a run. It may be called at any time, also for a run that
// has ended already.
func (w *Watcher) Add(target Target) {
	look := target.Due
	if latest := time.Now().Add(waitingEvery); look.After(latest) {
		look = latest
	}
	w.mu.Lock()
	w.open++
	w.queue.Push(&watch{Target: target}, look)
	w.mu.Unlock()
	w.signal()
}

// Open returns how many runs are watched.
func (w *Watcher) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run watches until ctx is done, and returns once its goroutines have ended.
func (w *Watcher) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		w.turn()
		timer := time.NewTimer(w.dispatch(ctx, &group))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-w.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// dispatch starts a look at every run whose turn has come, as far as there is
// room, and returns how long there is nothing to do: at most a second, so that
// the loop is seen to turn.
func (w *Watcher) dispatch(ctx context.Context, group *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		next, look, ok := w.queue.Peek()
		if !ok {
			return time.Second
		}
		now := time.Now()
		if wait := look.Sub(now); wait > 0 {
			return min(wait, time.Second)
		}
		overdue := !next.Due.After(now)
		switch {
		case overdue && len(w.polls) < w.config.Watchers:
			w.queue.Pop()
			w.poll(ctx, group, next, now)
		case overdue && !next.polled && w.evict(now):
			return time.Second // the poll that makes room wakes the loop
		case w.reading < readers:
			w.queue.Pop()
			w.read(ctx, group, next)
		default:
			return time.Second // a reader that finishes wakes the loop
		}
	}
}

// evict has the poll that has lasted longest make room for a run that has just
// fallen due, and reports whether there will be room.
func (w *Watcher) evict(now time.Time) bool {
	if w.evicted != nil {
		return true
	}
	var longest *watch
	for candidate := range w.polls {
		if longest == nil || candidate.polledAt.Before(longest.polledAt) {
			longest = candidate
		}
	}
	if now.Sub(longest.polledAt) < patience {
		return false
	}
	w.evicted = longest
	w.polls[longest]()
	return true
}

func (w *Watcher) poll(ctx context.Context, group *sync.WaitGroup, target *watch, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	target.polledAt = now
	w.polls[target] = cancel
	group.Go(func() {
		defer cancel()
		end, err := w.look(ctx, target, true)
		w.mu.Lock()
		delete(w.polls, target)
		if w.evicted == target {
			w.evicted = nil
		}
		target.polled = true
		w.mu.Unlock()
		w.finish(ctx, target, end, err)
	})
}

func (w *Watcher) read(ctx context.Context, group *sync.WaitGroup, target *watch) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	w.reading++
	group.Go(func() {
		defer cancel()
		end, err := w.look(ctx, target, false)
		w.mu.Lock()
		w.reading--
		w.mu.Unlock()
		w.finish(ctx, target, end, err)
	})
}

func (w *Watcher) look(ctx context.Context, target *watch, wait bool) (*run.End, error) {
	end, err := w.runs.End(ctx, target.WorkflowID, target.RunID, wait)
	if errors.Is(err, run.ErrGone) {
		return &run.End{Broken: "gone"}, nil
	}
	return end, err
}

// finish reports a run that has ended and queues any other for its next turn.
func (w *Watcher) finish(ctx context.Context, target *watch, end *run.End, err error) {
	defer w.signal()
	if end != nil && err == nil {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
		target.Report(*end)
		return
	}
	if err != nil && ctx.Err() == nil {
		w.logger.Warn("cannot see whether a run has ended; looking again",
			"workflow", target.WorkflowID, "run", target.RunID, "error", err)
	}
	now := time.Now()
	every := waitingEvery
	if !target.Due.After(now) {
		every = overdueEvery
	} else if until := target.Due.Sub(now); until < every {
		every = until
	}
	w.mu.Lock()
	w.queue.Push(target, now.Add(every))
	w.mu.Unlock()
}
