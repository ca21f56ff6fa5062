package load

import (
	"container/heap"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Config of the traffic.
type Config struct {
	// Accounts is how many there are: account-0 to account-(N−1).
	Accounts int
	// Rate is the average number of changes a second.
	Rate float64
	// Seed makes the traffic repeatable.
	Seed uint64
	// Hot is the share of all bursts that go to account-0, from 0 to 1. With 0
	// all accounts are alike.
	Hot float64
}

// Default returns traffic that makes some 10 syncs a second with the demo's
// settle times, which an embedded Temporal server on two cores can do.
func Default() Config { return Config{Accounts: 200, Rate: 16, Seed: 7} }

// Validate returns all faults at once.
func (c Config) Validate() error {
	var errs []error
	if c.Accounts < 1 {
		errs = append(errs, config.Fault{Name: "accounts", Value: fmt.Sprint(c.Accounts), Problem: "must be at least 1"})
	}
	if !(c.Rate > 0 && c.Rate <= 100_000) {
		errs = append(errs, config.Fault{Name: "rate", Value: fmt.Sprint(c.Rate), Problem: "must be above 0 and at most 100000 changes a second"})
	}
	if !(c.Hot >= 0 && c.Hot <= 1) {
		errs = append(errs, config.Fault{Name: "hot", Value: fmt.Sprint(c.Hot), Problem: "must be from 0 to 1"})
	}
	return errors.Join(errs...)
}

const (
	burstMax = 4
	// burstMean is the mean of 1 to burstMax, all as likely.
	burstMean = (1 + burstMax) / 2.0
	gapMin    = 300 * time.Millisecond
	gapMax    = 1300 * time.Millisecond
)

// Event is one change to make.
type Event struct {
	// After is when, counted from the start of the traffic.
	After   time.Duration
	Account string
}

// Events returns the endless sequence of changes in the order of their times.
// Bursts begin as a Poisson process.
func (c Config) Events() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		random := rand.New(rand.NewPCG(c.Seed, 0x10ad))
		meanPause := burstMean / c.Rate * float64(time.Second)
		var pending events
		nextBurst := time.Duration(0)
		for {
			for len(pending) == 0 || nextBurst <= pending[0].After {
				account := random.IntN(c.Accounts)
				if random.Float64() < c.Hot {
					account = 0
				}
				at := nextBurst
				for range 1 + random.IntN(burstMax) {
					heap.Push(&pending, Event{After: at, Account: fmt.Sprintf("account-%d", account)})
					at += gapMin + time.Duration(random.Int64N(int64(gapMax-gapMin)))
				}
				nextBurst += time.Duration(random.ExpFloat64() * meanPause)
			}
			if !yield(heap.Pop(&pending).(Event)) {
				return
			}
		}
	}
}

// events is a heap by time.
type events []Event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].After < e[j].After }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(Event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
