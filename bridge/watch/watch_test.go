package watch_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/bridge/watch"
)

// temporal is what the watcher asks. It counts the long polls that are open.
type temporal struct {
	mu       sync.Mutex
	ends     map[string]chan struct{} // closed when the run has ended
	polls    int                      // now
	polled   int                      // ever
	most     int                      // long polls at a time
	reads    int
	failures int // requests to answer with an error first
	cap      int // long polls that the frontend allows, 0 for any number, -1 for none
	refused  int
	refusal  time.Duration // how long a refusal takes, whatever the context says
	hang     chan struct{} // requests wait for it, whatever their context says
	broken   string        // run that cannot be read
	gone     string        // run that Temporal does not have any more
	silent   bool          // requests are not answered
}

func (f *temporal) run(id string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends[id] == nil {
		f.ends[id] = make(chan struct{})
	}
	return f.ends[id]
}

func (f *temporal) End(ctx context.Context, _, runID string, wait bool) (*run.End, error) {
	ended := f.run(runID)
	f.mu.Lock()
	if f.failures > 0 {
		f.failures--
		f.mu.Unlock()
		return nil, fmt.Errorf("unavailable")
	}
	if f.broken == runID {
		f.mu.Unlock()
		return nil, fmt.Errorf("corrupt")
	}
	if f.silent {
		f.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if hang := f.hang; hang != nil {
		f.mu.Unlock()
		<-hang
		return nil, ctx.Err()
	}
	if f.gone == runID {
		f.mu.Unlock()
		return nil, run.ErrGone
	}
	if wait && f.cap != 0 && f.polls >= f.cap {
		f.refused++
		refusal := f.refusal
		f.mu.Unlock()
		time.Sleep(time.Millisecond + refusal) // or a storm would stop the clock
		return nil, serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_CONCURRENT_LIMIT, "namespace count limit exceeded")
	}
	if wait {
		f.polled++
		f.polls++
		f.most = max(f.most, f.polls)
	} else {
		f.reads++
	}
	f.mu.Unlock()
	if !wait {
		time.Sleep(5 * time.Millisecond)
		select {
		case <-ended:
			return &run.End{}, nil
		default:
			return nil, nil
		}
	}
	defer func() {
		f.mu.Lock()
		f.polls--
		f.mu.Unlock()
	}()
	select {
	case <-ended:
		return &run.End{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(20 * time.Second):
		return nil, nil
	}
}

// inWatcher runs test in a bubble with a running watcher of the given places.
func inWatcher(t *testing.T, watchers int, test func(f *temporal, w *watch.Watcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &temporal{ends: map[string]chan struct{}{}}
		w := watch.New(watch.Config{Watchers: watchers}, f, slog.New(slog.DiscardHandler), func() {})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = w.Run(ctx) })
		test(f, w)
		cancel()
		group.Wait()
		require.LessOrEqual(t, f.most, watchers)
	})
}

// reports collects when ends were reported.
type reports struct {
	mu sync.Mutex
	at map[string]time.Time
}

// late has n runs end, each so long after it was added and one after the other,
// and returns how many were reported more than a second after that.
func (r *reports) late(w *watch.Watcher, f *temporal, n int, after time.Duration) (late int) {
	ended := map[string]time.Time{}
	for i := range n {
		id := fmt.Sprint("moving-", i)
		w.Add(r.target(id, time.Now().Add(100*time.Millisecond)))
		time.Sleep(after)
		ended[id] = time.Now()
		close(f.run(id))
	}
	time.Sleep(time.Minute)
	for id, at := range ended {
		if r.at[id].Sub(at) > time.Second {
			late++
		}
	}
	return late
}

func (r *reports) target(id string, due time.Time) watch.Target {
	return watch.Target{WorkflowID: "w", RunID: id, Due: due, Report: func(run.End) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, twice := r.at[id]; twice {
			panic("reported twice: " + id)
		}
		r.at[id] = time.Now()
	}}
}

func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at)
}

func TestEndIsHeardAtOnceWithOneRequest(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		w.Add(r.target("a", time.Now().Add(30*time.Second)))
		time.Sleep(31 * time.Second)
		require.Equal(t, 1, w.Open())
		ended := time.Now()
		close(f.run("a"))
		synctest.Wait()
		require.Equal(t, ended, r.at["a"])
		require.Zero(t, f.reads)
		require.Equal(t, 1, f.most)
		require.Zero(t, w.Open())
	})
}

func TestRunThatHasEndedAlreadyIsReported(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		close(f.run("a"))
		w.Add(r.target("a", time.Now()))
		synctest.Wait()
		require.Equal(t, 1, r.count())
	})
}

func TestRunThatEndsBeforeItIsDueIsNoticed(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		w.Add(r.target("a", time.Now().Add(time.Hour)))
		time.Sleep(time.Second)
		close(f.run("a")) // terminated by hand, say
		time.Sleep(time.Minute)
		require.Equal(t, 1, r.count())
	})
}

// TestStuckRunsDoNotHideOthers: 500 stuck runs and 4,500 that wait, 100 places,
// and 100 runs that end as they fall due over a minute.
func TestStuckRunsDoNotHideOthers(t *testing.T) {
	inWatcher(t, 100, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		for i := range 500 {
			w.Add(r.target(fmt.Sprint("stuck-", i), time.Now()))
		}
		for i := range 4400 {
			w.Add(r.target(fmt.Sprint("waiting-", i), time.Now().Add(time.Hour)))
		}
		time.Sleep(time.Minute)
		require.LessOrEqual(t, r.late(w, f, 100, 600*time.Millisecond), 5, "p95 within a second")
		require.Equal(t, 100, r.count())
	})
}

// TestHangingRequestsAreNoTurns: the loop goes round, but nothing comes back.
func TestHangingRequestsAreNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &temporal{ends: map[string]chan struct{}{}, hang: make(chan struct{})}
		var turned atomic.Int64
		w := watch.New(watch.Config{Watchers: 4}, f, slog.New(slog.DiscardHandler), func() { turned.Store(time.Now().UnixNano()) })
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = w.Run(ctx) })
		w.Add(watch.Target{WorkflowID: "w", RunID: "a", Due: time.Now(), Report: func(run.End) {}})
		time.Sleep(30 * time.Second)
		require.Less(t, time.Now().UnixNano()-turned.Load(), int64(2*time.Second), "the server may hold a poll that long")
		time.Sleep(30 * time.Second)
		require.Greater(t, time.Now().UnixNano()-turned.Load(), int64(25*time.Second))
		close(f.hang)
		cancel()
		group.Wait()
	})
}

func TestStuckRunsAreSeenToo(t *testing.T) {
	inWatcher(t, 10, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		for i := range 200 {
			w.Add(r.target(fmt.Sprint(i), time.Now()))
		}
		time.Sleep(5 * time.Minute)
		for i := range 200 {
			close(f.run(fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 200, r.count())
	})
}

func TestRunThatIsGoneHasEnded(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		f.gone = "a"
		var end run.End
		w.Add(watch.Target{WorkflowID: "w", RunID: "a", Due: time.Now(), Report: func(e run.End) { end = e }})
		synctest.Wait()
		require.Equal(t, "gone", end.Broken)
		require.Zero(t, w.Open())
	})
}

func TestErrorsAreNotEnds(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		f.failures = 10
		w.Add(r.target("a", time.Now()))
		time.Sleep(10 * time.Second)
		require.Zero(t, r.count())
		close(f.run("a"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, r.count())
	})
}

// TestTemporalAwayIsNotAskedInAStorm: thousands of overdue runs, and every look
// fails at once. Once it is back all ends are seen as soon as ever.
func TestTemporalAwayIsNotAskedInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &temporal{ends: map[string]chan struct{}{}}
		var log bytes.Buffer
		w := watch.New(watch.Config{Watchers: 100}, f, slog.New(slog.NewTextHandler(&log, nil)), func() {})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = w.Run(ctx) })
		r := &reports{at: map[string]time.Time{}}
		for i := range 5000 {
			w.Add(r.target(fmt.Sprint(i), time.Now()))
		}
		time.Sleep(30 * time.Second)
		f.mu.Lock()
		const failures = 1 << 30
		f.failures = failures
		f.mu.Unlock()
		time.Sleep(5 * time.Minute)
		f.mu.Lock()
		asked := failures - f.failures
		f.failures = 0
		f.mu.Unlock()
		synctest.Wait()
		require.Less(t, asked, 5*60*110/4, "some 108 each 5 seconds")
		require.Greater(t, asked, 5*60/5)
		require.Less(t, strings.Count(log.String(), "\n"), 40, "once in ten seconds")
		require.Contains(t, log.String(), "not_logged=")
		for i := range 5000 {
			close(f.run(fmt.Sprint(i)))
		}
		time.Sleep(70 * time.Second)
		require.Equal(t, 5000, r.count())
		cancel()
		group.Wait()
	})
}

// TestOneRunThatCannotBeReadHoldsNobodyUp: its errors are between answers.
func TestOneRunThatCannotBeReadHoldsNobodyUp(t *testing.T) {
	inWatcher(t, 4, func(f *temporal, w *watch.Watcher) {
		f.broken = "broken"
		r := &reports{at: map[string]time.Time{}}
		w.Add(r.target("broken", time.Now()))
		for i := range 100 {
			id := fmt.Sprint(i)
			w.Add(r.target(id, time.Now()))
			time.Sleep(time.Second)
			close(f.run(id))
			ended := time.Now()
			time.Sleep(time.Second)
			r.mu.Lock()
			require.WithinDuration(t, ended, r.at[id], 100*time.Millisecond)
			r.mu.Unlock()
		}
		require.Equal(t, 1, w.Open())
	})
}

// TestUnansweredLooksSayNothing: requests that time out do not make a run one
// that was looked at often, and to be looked at rarely.
func TestUnansweredLooksSayNothing(t *testing.T) {
	inWatcher(t, 1, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		f.mu.Lock()
		f.silent = true
		f.mu.Unlock()
		for i := range 5 {
			w.Add(r.target(fmt.Sprint(i), time.Now()))
		}
		time.Sleep(10 * time.Minute)
		f.mu.Lock()
		f.silent = false
		f.mu.Unlock()
		for i := range 5 {
			close(f.run(fmt.Sprint(i)))
		}
		time.Sleep(35 * time.Second) // one may hang for 30 still
		require.Equal(t, 5, r.count())
	})
}

// TestForgottenRunsAreLeftAlone, whatever is being done with them.
func TestForgottenRunsAreLeftAlone(t *testing.T) {
	inWatcher(t, 3, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		var forget []func()
		for i := range 60 { // polled, waiting for another look, not due
			due := time.Now()
			if i >= 50 {
				due = due.Add(time.Hour)
			}
			forget = append(forget, w.Add(r.target(fmt.Sprint(i), due)))
		}
		time.Sleep(time.Minute)
		for _, f := range forget {
			f()
			f()
		}
		require.Zero(t, w.Open())
		w.Add(r.target("wanted", time.Now()))
		synctest.Wait()
		require.Equal(t, 1, f.polls, "their places are free")
		looks := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.polled + f.reads
		}
		before := looks()
		time.Sleep(2 * time.Hour)
		require.LessOrEqual(t, looks()-before, 2*60*60/80+20, "only one is looked at, ever less often")
		for i := range 60 {
			close(f.run(fmt.Sprint(i)))
		}
		time.Sleep(2 * time.Hour)
		require.Zero(t, r.count())
	})
}

// TestBacklogIsCheapAndHidesNobody: tens of thousands of overdue runs, as after
// an outage, are looked at ever less often, and a run that falls due now is heard
// of at once all the same.
func TestBacklogIsCheapAndHidesNobody(t *testing.T) {
	inWatcher(t, 100, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		for i := range 20_000 {
			w.Add(r.target(fmt.Sprint("overdue-", i), time.Now()))
		}
		time.Sleep(5 * time.Minute)
		before := f.looks()
		time.Sleep(time.Minute)
		require.Less(t, f.looks()-before, 25_000, "some once a minute each")

		late := 0
		for i := range 50 {
			id := fmt.Sprint("moving-", i)
			w.Add(r.target(id, time.Now().Add(100*time.Millisecond)))
			time.Sleep(time.Second)
			ended := time.Now()
			close(f.run(id))
			time.Sleep(time.Second)
			if at, ok := r.seen(id); !ok || at.Sub(ended) > time.Second {
				late++
			}
		}
		require.Zero(t, late)
	})
}

func (f *temporal) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (r *reports) seen(id string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.at[id]
	return at, ok
}
