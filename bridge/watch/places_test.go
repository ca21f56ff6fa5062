package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/watch"
)

// TestFrontendCapBelowWatchers: half of the places are refused, and the runs that
// move are still seen at once.
func TestFrontendCapBelowWatchers(t *testing.T) {
	inWatcher(t, 40, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		f.cap = 20
		for i := range 200 {
			w.Add(r.target(fmt.Sprint("stuck-", i), time.Now()))
		}
		time.Sleep(time.Minute)
		require.LessOrEqual(t, r.late(w, f, 60, time.Second), 3, "p95 within a second")
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Less(t, f.refused, 100, "a refused place is not asked for all the time")
		require.Equal(t, 20, f.most)
	})
}

// TestNoPlaceAtAll: all places are other bridges'. Then the ends are read, and
// nobody asks for places in a storm; once there are some again, all are used.
func TestNoPlaceAtAll(t *testing.T) {
	inWatcher(t, 40, func(f *temporal, w *watch.Watcher) {
		f.cap = -1
		r := &reports{at: map[string]time.Time{}}
		for i := range 10 {
			id := fmt.Sprint("ended-", i)
			close(f.run(id))
			w.Add(r.target(id, time.Now()))
		}
		for i := range 200 {
			w.Add(r.target(fmt.Sprint("stuck-", i), time.Now()))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 10, r.count())
		f.mu.Lock()
		require.Zero(t, f.most)
		require.Less(t, f.refused, 40+20, "each place once, then one in five seconds")
		f.cap = 0
		f.mu.Unlock()
		time.Sleep(5 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Equal(t, 40, f.most)
	})
}

// TestRefusedPollIsNoLook: a run that has long been overdue is looked at once a
// minute, and a look that the frontend refuses is made up for at once.
func TestRefusedPollIsNoLook(t *testing.T) {
	inWatcher(t, 1, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		w.Add(r.target("stuck", time.Now()))
		time.Sleep(10 * time.Minute)
		polling := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.polls > 0
		}
		for !polling() {
			time.Sleep(time.Second)
		}
		for polling() {
			time.Sleep(time.Second)
		}
		f.mu.Lock()
		f.cap = -1
		f.mu.Unlock()
		close(f.run("stuck"))
		time.Sleep(62 * time.Second)
		require.Equal(t, 1, r.count())
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Equal(t, 1, f.refused)
	})
}

// TestPollRefusedAfterItMadeRoomIsNoLook: a refusal that takes so long that the
// poll is told to make room meanwhile is made up for at once all the same.
func TestPollRefusedAfterItMadeRoomIsNoLook(t *testing.T) {
	inWatcher(t, 1, func(f *temporal, w *watch.Watcher) {
		r := &reports{at: map[string]time.Time{}}
		w.Add(r.target("stuck", time.Now()))
		time.Sleep(10 * time.Minute)
		f.mu.Lock()
		f.cap, f.refusal = -1, 4*time.Second
		f.mu.Unlock()
		refused := func() int {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.refused
		}
		for refused() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		close(f.run("stuck"))
		time.Sleep(2 * time.Second)
		w.Add(r.target("fresh", time.Now())) // takes the place
		time.Sleep(4 * time.Second)
		_, seen := r.seen("stuck")
		require.True(t, seen)
		require.Equal(t, 1, refused())
	})
}
