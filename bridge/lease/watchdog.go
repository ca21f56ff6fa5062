// Package lease makes the bridge's loops prove that they turn.
//
// franz-go has no max.poll.interval: a member whose poll loop hangs goes on
// heartbeating and keeps its partitions for ever. So every loop of the bridge
// reports each turn to a [Watchdog]; one that does not turn within its lease
// ends the process, and the group gives its partitions to another member.
//
// A turn is an answer, an error included, or the finding that there is nothing
// to do. A heartbeat is none.
package lease

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// StuckError says which loop did not turn.
type StuckError struct {
	Loop  string
	Since time.Duration // since its last turn
	Lease time.Duration
}

func (e StuckError) Error() string {
	return fmt.Sprintf("loop %q has not turned for %s, its lease is %s: leaving the group", e.Loop, e.Since.Round(time.Millisecond), e.Lease)
}

// Watchdog watches loops. The zero value watches none.
//
// A process that was suspended (a paused machine, SIGSTOP) has loops that did not
// turn, and nothing wrong with them: the time for which nobody looked is forgiven,
// once between two turns of a loop. One that gets a little time every few seconds
// (throttled, swapping) is not suspended, and its loops must turn.
type Watchdog struct {
	// Start is how long the loops may take until their first turn, their lease not
	// counted.
	Start time.Duration

	mu     sync.Mutex
	loops  []*loop
	looked time.Time // when somebody last looked
}

// every is how often the Watchdog looks; a longer gap than nap between two looks
// is time in which the process slept.
const (
	every = 250 * time.Millisecond
	nap   = 4 * every
)

type loop struct {
	name  string
	lease time.Duration
	// last is when it last turned, or when its first turn was due; nil before its
	// first turn and the first look.
	last atomic.Pointer[time.Time]
	// forgiven is for how long it need not have turned since forgave, which was its
	// last turn then. Guarded by Watchdog.mu.
	forgiven time.Duration
	forgave  *time.Time
}

// Loop adds a loop and returns what it calls at every turn.
func (w *Watchdog) Loop(name string, lease time.Duration) (turn func()) {
	l := &loop{name: name, lease: lease}
	w.mu.Lock()
	w.loops = append(w.loops, l)
	w.mu.Unlock()
	return func() {
		now := time.Now()
		l.last.Store(&now)
	}
}

// look returns the time and forgives the loops what was a nap. The caller holds
// mu.
func (w *Watchdog) look() time.Time {
	now := time.Now()
	first := now.Add(w.Start)
	var gap time.Duration // none before the first look
	if !w.looked.IsZero() {
		gap = now.Sub(w.looked)
	}
	for _, l := range w.loops {
		l.last.CompareAndSwap(nil, &first)
		if last := l.last.Load(); gap > nap && l.forgave != last {
			l.forgave, l.forgiven = last, max(0, min(gap-nap, now.Sub(*last)))
		}
	}
	w.looked = now
	return now
}

// idle returns the time since the loop's last turn, or since its first was due.
func (l *loop) idle(now time.Time) time.Duration {
	last := l.last.Load()
	idle := now.Sub(*last)
	if l.forgave == last {
		idle -= l.forgiven
	}
	return max(0, idle)
}

// Check returns a [StuckError] for the loop whose lease has been over for
// longest, if there is one: others may only wait for it.
func (w *Watchdog) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stuck error
	var over time.Duration
	now := w.look()
	for _, l := range w.loops {
		if idle := l.idle(now); idle-l.lease > over {
			over = idle - l.lease
			stuck = StuckError{Loop: l.name, Since: idle, Lease: l.lease}
		}
	}
	return stuck
}

// Headroom returns the loop that is closest to the end of its lease and how much
// of it is left; ok is false when there are no loops.
func (w *Watchdog) Headroom() (name string, left time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.look()
	for _, l := range w.loops {
		if rest := l.lease - l.idle(now); !ok || rest < left {
			name, left, ok = l.name, rest, true
		}
	}
	return name, left, ok
}

// Run checks four times a second until ctx is done or a lease is over.
func (w *Watchdog) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := w.Check(); err != nil {
				return err
			}
		}
	}
}
