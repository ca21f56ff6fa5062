package watch

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

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
	// hangTimeout is how long after its timeout a look may still be on its way.
	hangTimeout = time.Second
	// patience is how long a poll keeps its place against a run that falls due.
	patience = time.Second
	// overdueEvery and waitingEvery are how often a run is read that is overdue
	// or not due yet; the latter only to notice that somebody ended it.
	overdueEvery = 2 * time.Second
	waitingEvery = time.Minute
	// growEvery is how often a place is tried again that was refused, warnEvery
	// how often that is logged.
	growEvery = 5 * time.Second
	warnEvery = time.Minute
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
	reads   map[*watch]struct{}
	open    int
	// places is how many long polls there may be: WATCHERS, or fewer while the
	// frontend, whose cap all bridges share, has refused some.
	places  int
	grownAt time.Time     // when places last changed
	warned  time.Time     // when that was last logged
	wake    chan struct{} // capacity 1: a pending wake-up is enough
}

// New returns a Watcher that watches nothing yet. turn is called whenever its
// loop has gone round and no look is overdue.
func New(config Config, runs Runs, logger *slog.Logger, turn func()) *Watcher {
	return &Watcher{
		config: config, runs: runs, logger: logger, turn: turn,
		polls: make(map[*watch]func()), reads: make(map[*watch]struct{}),
		places: config.Watchers,
		wake:   make(chan struct{}, 1),
	}
}

// watch is the state of one target.
type watch struct {
	Target
	lookedAt time.Time // when the current look began
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
		if w.answered() {
			w.turn()
		}
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

// answered reports whether every look has had its answer in its time. A loop
// that goes round while its requests hang has a pulse, but makes no progress.
func (w *Watcher) answered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for target := range w.polls {
		if now.Sub(target.lookedAt) > pollTimeout+hangTimeout {
			return false
		}
	}
	for target := range w.reads {
		if now.Sub(target.lookedAt) > readTimeout+hangTimeout {
			return false
		}
	}
	return true
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
		case overdue && len(w.polls) < w.places:
			w.queue.Pop()
			w.poll(ctx, group, next, now)
		case overdue && !next.polled && w.evict(now):
			return time.Second // the poll that makes room wakes the loop
		case len(w.reads) < readers:
			w.queue.Pop()
			w.read(ctx, group, next, now)
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
		if longest == nil || candidate.lookedAt.Before(longest.lookedAt) {
			longest = candidate
		}
	}
	if now.Sub(longest.lookedAt) < patience {
		return false
	}
	w.evicted = longest
	w.polls[longest]()
	return true
}

func (w *Watcher) poll(ctx context.Context, group *sync.WaitGroup, target *watch, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	target.lookedAt = now
	w.polls[target] = cancel
	group.Go(func() {
		defer cancel()
		end, err := w.look(ctx, target, true)
		w.mu.Lock()
		delete(w.polls, target)
		if w.evicted == target {
			w.evicted = nil
		}
		refused := w.adapt(err)
		target.polled = target.polled || !refused
		w.mu.Unlock()
		if refused {
			w.again(target, 0)
			return
		}
		w.finish(ctx, target, end, err)
	})
}

func (w *Watcher) read(ctx context.Context, group *sync.WaitGroup, target *watch, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	target.lookedAt = now
	w.reads[target] = struct{}{}
	group.Go(func() {
		defer cancel()
		end, err := w.look(ctx, target, false)
		w.mu.Lock()
		delete(w.reads, target)
		w.mu.Unlock()
		w.finish(ctx, target, end, err)
	})
}

// adapt fits the number of places to what the frontend allows, given how a poll
// has ended, and reports whether it was refused for lack of a place. The caller
// holds mu.
func (w *Watcher) adapt(err error) (refused bool) {
	now := time.Now()
	exhausted := (*serviceerror.ResourceExhausted)(nil)
	if errors.As(err, &exhausted) && exhausted.Cause == enumspb.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT {
		w.places, w.grownAt = max(1, min(w.places, len(w.polls))), now
		if now.Sub(w.warned) >= warnEvery {
			w.warned = now
			w.logger.Warn("Temporal's frontend allows no more long polls; lower WATCHERS, or raise frontend.namespaceCount there",
				"WATCHERS", w.config.Watchers, "using", w.places)
		}
		return true
	}
	if err == nil && w.places < w.config.Watchers && now.Sub(w.grownAt) >= growEvery {
		w.places, w.grownAt = w.places+1, now
	}
	return false
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
	if end != nil && err == nil {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
		w.signal() // there is room
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
	w.again(target, every)
}

// again queues a run for its next look.
func (w *Watcher) again(target *watch, after time.Duration) {
	w.mu.Lock()
	w.queue.Push(target, time.Now().Add(after))
	w.mu.Unlock()
	w.signal()
}
