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
// It reckons in time that this process was awake: a process that was suspended
// (a paused machine, SIGSTOP) has loops that did not turn, and nothing wrong with
// them.
type Watchdog struct {
	// Start is how long the loops may take until their first turn, their lease not
	// counted.
	Start time.Duration

	awake atomic.Int64 // nanoseconds

	mu     sync.Mutex
	loops  []*loop
	looked time.Time // when awake was brought forward
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
	last  atomic.Int64 // awake at its last turn, -1 before the first
}

// Loop adds a loop and returns what it calls at every turn.
func (w *Watchdog) Loop(name string, lease time.Duration) (turn func()) {
	l := &loop{name: name, lease: lease}
	l.last.Store(-1)
	w.mu.Lock()
	w.loops = append(w.loops, l)
	w.mu.Unlock()
	return func() { l.last.Store(w.awake.Load()) }
}

// look brings the time awake forward and returns it. The caller holds mu.
func (w *Watchdog) look() time.Duration {
	now := time.Now()
	if !w.looked.IsZero() {
		w.awake.Add(int64(min(now.Sub(w.looked), nap)))
	}
	w.looked = now
	return time.Duration(w.awake.Load())
}

// idle returns the time since the loop's last turn, or since its first was due.
func (w *Watchdog) idle(l *loop, awake time.Duration) time.Duration {
	last := time.Duration(l.last.Load())
	if last < 0 {
		return max(0, awake-w.Start)
	}
	return awake - last
}

// Check returns a [StuckError] for the loop whose lease has been over for
// longest, if there is one: others may only wait for it.
func (w *Watchdog) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var stuck error
	var over time.Duration
	awake := w.look()
	for _, l := range w.loops {
		if idle := w.idle(l, awake); idle-l.lease > over {
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
	awake := w.look()
	for _, l := range w.loops {
		if rest := l.lease - w.idle(l, awake); !ok || rest < left {
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
