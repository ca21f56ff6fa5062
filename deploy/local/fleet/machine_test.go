package fleet

import (
	"sync"
	"time"
)

// machine watches how late timers are, which is what a test of timing can hold
// the code to.
type machine struct {
	end  chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	n     int
	total time.Duration
	worst time.Duration
}

func watchMachine() *machine {
	m := &machine{end: make(chan struct{})}
	m.done.Go(func() {
		const nap = 5 * time.Millisecond
		timer := time.NewTimer(nap)
		defer timer.Stop()
		for {
			due := time.Now().Add(nap)
			timer.Reset(nap)
			select {
			case <-m.end:
				return
			case <-timer.C:
			}
			late := time.Since(due)
			m.mu.Lock()
			m.n++
			m.total += late
			m.worst = max(m.worst, late)
			m.mu.Unlock()
		}
	})
	return m
}

// late returns by how much timers were late on average and at worst.
func (m *machine) late() (average, worst time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total / time.Duration(max(1, m.n)), m.worst
}

func (m *machine) stop() { close(m.end); m.done.Wait() }
