package clock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/clock"
	"github.com/quiesce-io/quiesce/bridge/run"
)

// temporal is a server whose clock differs by ahead and that takes its time.
type temporal struct {
	takes time.Duration

	mu    sync.Mutex
	ahead time.Duration
	err   error
	reads int
}

func (f *temporal) set(ahead time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead, f.err = ahead, err
}

func (f *temporal) ReadClock(context.Context, string, string) (run.ClockReading, error) {
	f.mu.Lock()
	f.reads++
	ahead, err := f.ahead, f.err
	f.mu.Unlock()
	reading := run.ClockReading{Before: time.Now()}
	time.Sleep(f.takes / 2)
	reading.Server = time.Now().Add(ahead)
	time.Sleep(f.takes / 2)
	reading.After = time.Now()
	return reading, err
}

func TestClocks(t *testing.T) {
	for _, test := range []struct {
		name         string
		ahead, takes time.Duration
		agrees       bool
	}{
		{"together", 0, 100 * time.Millisecond, true},
		{"apart, within the skew", 900 * time.Millisecond, 0, true},
		{"the bridge is behind", 15 * time.Second, 100 * time.Millisecond, false},
		{"the bridge is ahead", -15 * time.Second, 100 * time.Millisecond, false},
		{"a slow answer proves nothing", 2 * time.Second, 5 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock.New(&temporal{ahead: test.ahead, takes: test.takes}, "w", time.Second, 10*time.Second, slog.New(slog.DiscardHandler))
				require.True(t, c.Agrees(), "nothing is known yet")
				require.NoError(t, c.Compare(t.Context()))
				require.Equal(t, test.agrees, c.Agrees(), "offset %s", c.Offset())
			})
		})
	}
}

// TestEventThatIsLaterThanNow stops admission at once; a comparison, not another
// event, lets it go on.
func TestEventThatIsLaterThanNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &temporal{ahead: 15 * time.Second, takes: time.Millisecond}
		var log bytes.Buffer
		c := clock.New(server, "w", time.Second, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		c.Saw(time.Now().Add(-time.Hour))
		c.Saw(time.Now().Add(time.Second))
		require.True(t, c.Agrees(), "within the skew")
		c.Saw(time.Now().Add(14 * time.Second))
		require.False(t, c.Agrees())
		c.Saw(time.Now())
		require.False(t, c.Agrees(), "old events prove nothing")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "this machine's clock is 14.9995s behind Temporal's", c.String(), "compared at once")
		require.Contains(t, log.String(), "behind Temporal's; nothing is admitted")
		server.set(0, nil)
		time.Sleep(2 * time.Second)
		require.True(t, c.Agrees())
		server.set(-15*time.Second, nil)
		require.NoError(t, c.Compare(ctx))
		require.Contains(t, c.String(), "ahead of Temporal's")
		cancel()
		require.NoError(t, <-done)
	})
}

// TestManyLateEventsAreOneComparisonASecond has runs end all the time while the
// clock is behind: a comparison is a run of its own, and a line in the log.
func TestManyLateEventsAreOneComparisonASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &temporal{ahead: 15 * time.Second, takes: 20 * time.Millisecond}
		c := clock.New(server, "w", time.Second, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		for range 500 {
			c.Saw(time.Now().Add(14 * time.Second))
			time.Sleep(20 * time.Millisecond)
		}
		cancel()
		require.NoError(t, <-done)
		require.InDelta(t, 10, server.reads, 1)
	})
}

func TestClockThatIsSetRightIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &temporal{ahead: 15 * time.Second}
		c := clock.New(server, "w", time.Second, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(clock.Every + time.Second)
		require.False(t, c.Agrees())
		server.set(0, errors.New("unavailable"))
		time.Sleep(10 * time.Second)
		require.False(t, c.Agrees(), "a failure leaves what was known")
		server.set(0, nil)
		time.Sleep(2 * time.Second)
		require.True(t, c.Agrees())
		cancel()
		require.NoError(t, <-done)
	})
}
