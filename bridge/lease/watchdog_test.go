package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/lease"
)

func TestLoopThatStopsTurningIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w lease.Watchdog
		poll, commit := w.Loop("poll", 30*time.Second), w.Loop("committer", 10*time.Second)
		stuck := make(chan error, 1)
		go func() { stuck <- w.Run(context.Background()) }()

		for range 60 {
			time.Sleep(time.Second)
			poll()
			commit()
		}
		require.NoError(t, w.Check())
		name, left, ok := w.Headroom()
		require.True(t, ok)
		require.Equal(t, "committer", name)
		require.InDelta(t, 10, left.Seconds(), 0.5)

		blocked := time.Now()
		for range 11 {
			time.Sleep(time.Second)
			poll()
		}
		err := <-stuck
		require.Less(t, time.Since(blocked), 12*time.Second)
		require.Equal(t, "committer", err.(lease.StuckError).Loop)
		require.ErrorContains(t, err, "leaving the group")
	})
}

func TestLoopsAreGivenTheTimeToStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lease.Watchdog{Start: 30 * time.Second}
		turn := w.Loop("poll", time.Second)
		w.Loop("committer", 2*time.Second) // hangs in its first turn
		stuck := make(chan error, 1)
		began := time.Now()
		go func() { stuck <- w.Run(context.Background()) }()
		time.Sleep(29 * time.Second)
		require.NoError(t, w.Check())
		_, left, _ := w.Headroom()
		require.Equal(t, time.Second, left)
		for len(stuck) == 0 {
			turn()
			time.Sleep(100 * time.Millisecond)
		}
		require.ErrorContains(t, <-stuck, "committer")
		require.WithinDuration(t, began.Add(32*time.Second), time.Now(), time.Second)
	})
}

// TestSuspensionBeforeTheFirstTurnIsForgiven, like any other.
func TestSuspensionBeforeTheFirstTurnIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lease.Watchdog{Start: 30 * time.Second}
		w.Loop("poll", 15*time.Second)
		require.NoError(t, w.Check())
		time.Sleep(10 * time.Minute)
		require.NoError(t, w.Check())
	})
}

// TestSuspendedProcessIsNotStuck: nobody looked for an hour, and nobody turned.
func TestSuspendedProcessIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w lease.Watchdog
		turn := w.Loop("poll", 30*time.Second)
		require.NoError(t, w.Check())
		turn()
		time.Sleep(time.Hour)
		require.NoError(t, w.Check())
		for range 200 {
			time.Sleep(250 * time.Millisecond)
			_ = w.Check()
		}
		require.Error(t, w.Check(), "but a loop that does not turn afterwards is")
	})
}

// TestStarvedProcessIsNotSuspended: it gets a moment every ten seconds, in which a
// loop that is well turns.
func TestStarvedProcessIsNotSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w lease.Watchdog
		well, hangs := w.Loop("poll", 30*time.Second), w.Loop("committer", 30*time.Second)
		require.NoError(t, w.Check())
		well()
		hangs()
		began := time.Now()
		var err error
		for err == nil {
			time.Sleep(10 * time.Second)
			err = w.Check()
			well()
			time.Sleep(10 * time.Millisecond)
			_, _, _ = w.Headroom() // others look as well
		}
		require.ErrorContains(t, err, "committer")
		require.Less(t, time.Since(began), 45*time.Second, "the lease, and one nap")
	})
}

// TestLoopThatIsOverForLongestIsNamed: others may only wait for it.
func TestLoopThatIsOverForLongestIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w lease.Watchdog
		w.Loop("committer", 20*time.Second)
		w.Loop("poll", 10*time.Second)
		w.Loop("lane", 15*time.Second)
		for range 4 * 30 {
			_ = w.Check()
			time.Sleep(250 * time.Millisecond)
		}
		require.ErrorContains(t, w.Check(), "poll")
	})
}
