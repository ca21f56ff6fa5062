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

// LongestLook is how long a look may be without its answer before the loop counts
// as hung: a hung one makes no turns from then on.
const LongestLook = pollTimeout + hangTimeout

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
	// overdueEvery is how soon a run is looked at again that is overdue; the
	// interval doubles with each look up to waitingEvery, or a backlog of many
	// thousands would keep all readers busy for nothing. A run that is not due
	// yet is looked at every waitingEvery, only to notice that somebody ended it.
	overdueEvery = 2 * time.Second
	waitingEvery = time.Minute
	// waitingSpacing lies between two such looks at least, whoever they are at:
	// with many thousands of runs they must not keep the readers from those that
	// are overdue.
	waitingSpacing = 25 * time.Millisecond
	// growEvery is how often a place is tried again that was refused, warnEvery
	// how often that is logged.
	growEvery = 5 * time.Second
	warnEvery = time.Minute
	// manyErrors in a row speak of Temporal, not of one run: then nothing is
	// asked for a while, twice as long each time.
	manyErrors = 8
	minRest    = 100 * time.Millisecond
	maxRest    = 5 * time.Second
	// complainEvery is how often it is logged that looks fail.
	complainEvery = 10 * time.Second
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
	fresh   due.Queue[*watch] // to be polled as they fall due: all that are not due yet
	again   due.Queue[*watch] // overdue and looked at before, by when to look again
	far     due.Queue[*watch] // of fresh, those to be read long before they are due
	polls   map[*watch]func() // being polled, with what ends the poll
	evicted *watch            // in polls still, but told to make room
	reads   map[*watch]struct{}
	open    int
	// places is how many long polls there may be: WATCHERS, or fewer, even none,
	// while the frontend, whose cap all bridges share, has refused some. One more
	// is tried every growEvery.
	places  int
	grownAt time.Time // when places last changed
	warned  time.Time // when that was last logged
	errors  errorRun
	wake    chan struct{} // capacity 1: a pending wake-up is enough
}

// errorRun are the errors since the last answer.
type errorRun struct {
	number    int
	rest      time.Duration // the present one, zero for none
	restUntil time.Time
	complains time.Time // when the next is logged
	silenced  int       // not logged since
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
	overdue  int       // looks since it fell due
	queued   bool      // in fresh
	busy     bool      // being polled or read
	ended    bool      // or forgotten
}

// Add begins to watch a run. It may be called at any time, also for a run that
// has ended already. Forget ends that without a report, unless one is on its
// way; it may be called at any time.
func (w *Watcher) Add(target Target) (forget func()) {
	added := &watch{Target: target}
	w.mu.Lock()
	w.open++
	w.enqueue(added, time.Now())
	w.mu.Unlock()
	w.signal()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !added.ended {
			added.ended = true
			w.open--
			if cancel := w.polls[added]; cancel != nil {
				cancel() // its place is for another
			}
		}
	}
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
		if now.Sub(target.lookedAt) > LongestLook {
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
// the loop is seen to turn. Runs that have just fallen due come first: behind a
// backlog of overdue ones they would be heard of minutes late.
func (w *Watcher) dispatch(ctx context.Context, group *sync.WaitGroup) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rest := time.Until(w.errors.restUntil); rest > 0 {
		return min(rest, time.Second)
	}
	if now := time.Now(); w.places < w.config.Watchers && now.Sub(w.grownAt) >= growEvery {
		w.places, w.grownAt = w.places+1, now
	}
	for {
		now := time.Now()
		next, at, ok := w.fresh.Peek()
		idle := time.Second
		switch {
		case ok && at.After(now):
			idle = min(idle, at.Sub(now))
		case ok && next.busy: // the read will queue it again
			w.fresh.Pop()
			next.queued = false
			continue
		case ok && next.ended:
			w.fresh.Pop()
			continue
		case ok && len(w.polls) < w.places:
			w.fresh.Pop()
			w.poll(ctx, group, next, now)
			continue
		case ok && w.evict(now):
			return time.Second // the poll that makes room wakes the loop
		case ok && now.Sub(at) > patience && len(w.reads) < readers:
			w.fresh.Pop()
			w.read(ctx, group, next, now)
			continue
		case ok:
			idle = patience / 4 // then there is a poll to evict, or reading begins
		}
		next, at, ok = w.again.Peek()
		switch {
		case !ok:
		case next.ended:
			w.again.Pop()
			continue
		case at.After(now):
			idle = min(idle, at.Sub(now))
		case len(w.polls) < w.places:
			w.again.Pop()
			w.poll(ctx, group, next, now)
			continue
		case len(w.reads) < readers:
			w.again.Pop()
			w.read(ctx, group, next, now)
			continue
		default:
			return idle // a reader that finishes wakes the loop
		}
		// Last, those that nothing is expected of.
		next, at, ok = w.far.Peek()
		switch {
		case !ok:
			return idle
		case at.After(now):
			return min(idle, at.Sub(now))
		case next.busy, next.ended, !next.Due.After(now):
			w.far.Pop()
		case len(w.reads) < readers:
			w.far.Pop()
			w.read(ctx, group, next, now)
		default:
			return idle
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
	if longest == nil || now.Sub(longest.lookedAt) < patience {
		return false
	}
	w.evicted = longest
	w.polls[longest]()
	return true
}

// Why a poll has no answer that says nothing about Temporal.
var (
	errMadeRoom = errors.New("made room for a run that falls due")
	errNoPlace  = errors.New("the frontend has no place for it")
)

func (w *Watcher) poll(ctx context.Context, group *sync.WaitGroup, target *watch, now time.Time) {
	polling, cancel := context.WithTimeout(ctx, pollTimeout)
	target.lookedAt, target.busy, target.queued = now, true, false
	w.polls[target] = cancel
	group.Go(func() {
		defer cancel()
		end, err := w.look(polling, target, true)
		w.mu.Lock()
		delete(w.polls, target)
		if refused(err) {
			w.shrink()
			err = errNoPlace
		}
		if w.evicted == target {
			w.evicted = nil
			if err != nil && !errors.Is(err, errNoPlace) { // refused, it was no look
				err = errMadeRoom
			}
		}
		w.mu.Unlock()
		w.finish(ctx, target, end, err)
	})
}

func (w *Watcher) read(ctx context.Context, group *sync.WaitGroup, target *watch, now time.Time) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	target.lookedAt, target.busy = now, true
	if !target.Due.After(now) {
		target.queued = false
	}
	w.reads[target] = struct{}{}
	group.Go(func() {
		defer cancel()
		end, err := w.look(reading, target, false)
		w.mu.Lock()
		delete(w.reads, target)
		w.mu.Unlock()
		w.finish(ctx, target, end, err)
	})
}

// refused reports whether a poll ended for lack of a place at the frontend.
func refused(err error) bool {
	exhausted := (*serviceerror.ResourceExhausted)(nil)
	return errors.As(err, &exhausted) && exhausted.Cause == enumspb.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT
}

// shrink makes do with the places that are taken, after a poll was refused: down
// to none, or the refused run would be polled again at once, and so for ever. The
// caller holds mu.
func (w *Watcher) shrink() {
	now := time.Now()
	w.places, w.grownAt = min(w.places, len(w.polls)), now
	if now.Sub(w.warned) >= warnEvery {
		w.warned = now
		w.logger.Warn("Temporal's frontend allows no more long polls; lower WATCHERS, or raise frontend.namespaceCount there",
			"WATCHERS", w.config.Watchers, "using", w.places)
	}
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
	ended := w.conclude(ctx, target, end, err)
	w.signal() // there is room
	if ended {
		target.Report(*end)
	}
}

// conclude reckons with what a look has told, and returns true if the run's end
// is to be reported.
func (w *Watcher) conclude(ctx context.Context, target *watch, end *run.End, err error) (ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	target.busy = false
	switch {
	case err == nil:
		w.errors.number, w.errors.rest = 0, 0
	case errors.Is(err, errNoPlace), errors.Is(err, errMadeRoom), target.ended, ctx.Err() != nil:
	default:
		w.failed(target, err, now)
	}
	switch {
	case target.ended: // forgotten meanwhile
		return false
	case end != nil && err == nil:
		w.open--
		target.ended = true
		return true
	case errors.Is(err, errNoPlace) && target.overdue > 0:
		w.again.Push(target, now) // its turn is still to come: nobody has looked
		return false
	case errors.Is(err, errNoPlace), target.lookedAt.Before(target.Due): // which says nothing of its end
	case err == nil, errors.Is(err, errMadeRoom):
		target.overdue++
	default:
		target.overdue = max(1, target.overdue) // an error says nothing about the run
	}
	w.enqueue(target, now)
	return false
}

// failed reckons with a look that has had no answer. One of many in a row says
// that Temporal is away or has enough: thousands of runs that are looked at all
// the same would make a storm of it. The caller holds mu.
func (w *Watcher) failed(target *watch, err error, now time.Time) {
	e := &w.errors
	if now.Before(e.complains) {
		e.silenced++
	} else {
		w.logger.Warn("cannot see whether a run has ended; looking again",
			"workflow", target.WorkflowID, "run", target.RunID, "error", err, "not_logged", e.silenced)
		e.complains, e.silenced = now.Add(complainEvery), 0
	}
	e.number++
	if e.number >= manyErrors && !now.Before(e.restUntil) { // the others of its round add nothing
		e.rest = min(maxRest, max(minRest, 2*e.rest))
		e.restUntil = now.Add(e.rest)
	}
}

// enqueue gives a run its next turn. The caller holds mu.
func (w *Watcher) enqueue(target *watch, now time.Time) {
	if target.overdue > 0 {
		w.again.Push(target, now.Add(min(waitingEvery, overdueEvery<<min(target.overdue-1, 10))))
		return
	}
	if !target.queued {
		target.queued = true
		w.fresh.Push(target, target.Due)
	}
	if target.Due.Sub(now) > waitingEvery {
		w.far.Push(target, now.Add(max(waitingEvery, time.Duration(w.open)*waitingSpacing)))
	}
}
