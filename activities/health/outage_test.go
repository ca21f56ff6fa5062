package health

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// fleet is workers with a budget in common, and accounts that always have
// changes: a call that went well is followed by the next, one that failed by its
// backoff, as workflow AccountSync has it.
type fleet struct {
	fails func(worker int, at time.Time) *contract.FailedAttempt // what a call meets; nil: success
	queue chan string

	mu     sync.Mutex
	random *rand.Rand
	budget *contract.BudgetState
	tries  map[string]int
	calls  []time.Time
	opened []time.Time

	succeeded []time.Time // calls, by when they began
}

// Renew implements [budget.Granter]: the budget workflow, a little way off.
func (f *fleet) Renew(_ context.Context, r contract.ShareRequest) (contract.Share, error) {
	time.Sleep(f.upTo(20 * time.Millisecond))
	f.mu.Lock()
	was := f.budget.Breaker.Open
	share, err := allot.Renew(f.budget, time.Now(), r)
	if f.budget.Breaker.Open && !was {
		f.opened = append(f.opened, time.Now())
	}
	f.mu.Unlock()
	time.Sleep(f.upTo(20 * time.Millisecond))
	return share, err
}

func (f *fleet) upTo(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.random.Int64N(int64(d)))
}

// run runs three workers for so long.
func (f *fleet) run(rps, accounts int, d time.Duration) {
	f.random = rand.New(rand.NewPCG(1, 2))
	f.budget = allot.New(time.Now().Add(-contract.ShareTTL))
	f.tries, f.queue = map[string]int{}, make(chan string, accounts)
	for i := range accounts {
		f.queue <- fmt.Sprint("account ", i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for worker := range 3 {
		shares := budget.NewFleet(budget.Config{UpstreamRPS: rps}, f, telemetry.Discard, quiet)
		wg.Go(func() { _ = shares.Run(ctx) })
		monitor := NewMonitor(shares, quiet)
		for range 20 {
			wg.Go(func() {
				for {
					select {
					case <-ctx.Done():
						return
					case account := <-f.queue:
						wait := f.sync(ctx, worker, monitor, account)
						time.AfterFunc(wait, func() { f.queue <- account })
					}
				}
			})
		}
	}
	time.Sleep(d)
	cancel()
	wg.Wait()
	time.Sleep(time.Minute) // what waits for its turn falls due
}

// sync makes one call for the account and returns how long the next has to wait.
func (f *fleet) sync(ctx context.Context, worker int, m *Monitor, account string) time.Duration {
	waits, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := m.Acquire(waits)
	if err != nil {
		return time.Second + f.upTo(4*time.Second)
	}
	if p.Start() != nil {
		return 0
	}
	p.Sent()
	f.mu.Lock()
	began := time.Now()
	f.calls = append(f.calls, began)
	attempt := f.fails(worker, began)
	f.mu.Unlock()
	time.Sleep(10*time.Millisecond + f.upTo(20*time.Millisecond))
	f.mu.Lock()
	defer f.mu.Unlock()
	if attempt == nil {
		f.tries[account] = 0
		f.succeeded = append(f.succeeded, began)
		m.Succeeded(account, began)
		return 0
	}
	if attempt.Class == contract.ClassThrottled {
		p.Throttled(0)
	}
	failed := *attempt
	failed.At = time.Now()
	m.Failed(account, failed)
	f.tries[account]++
	return min(contract.MaxBackoff, time.Second<<min(f.tries[account]-1, 10))
}

func (f *fleet) between(from, to time.Time) (n int) { return between(f.calls, from, to) }

func between(calls []time.Time, from, to time.Time) (n int) {
	for _, c := range calls {
		if !c.Before(from) && c.Before(to) {
			n++
		}
	}
	return n
}

// Upstream is out for 90 s: at most 18 calls are made once one worker has proof,
// and from 5 s after the end on the budget is used again.
func TestAnOutageOfTheFleet(t *testing.T) {
	const rps = 20
	unavailable := contract.FailedAttempt{Class: contract.ClassThrottled, Reason: "503"}
	for _, c := range []struct {
		name     string
		accounts int
		fails    contract.FailedAttempt
		opens    time.Duration // at the latest
	}{
		{"500", 200, broken, 3 * time.Second},
		{"503", 200, unavailable, 10 * time.Second}, // each is a pause of a second
		{"401", 200, denied, 3 * time.Second},
		{"500, three accounts", 3, broken, 45 * time.Second},
		{"401, three accounts", 3, denied, 45 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := time.Now().Add(30 * time.Second)
				back := out.Add(90 * time.Second)
				f := &fleet{fails: func(_ int, at time.Time) *contract.FailedAttempt {
					if at.Before(out) || !at.Before(back) {
						return nil
					}
					return &c.fails
				}}
				f.run(rps, c.accounts, 160*time.Second)
				require.Len(t, f.opened, 1)
				opened := f.opened[0]
				before, after := f.between(out, opened), f.between(opened.Add(1), back)
				used := f.between(back.Add(5*time.Second), back.Add(35*time.Second))
				t.Logf("%d calls in %s before the breaker opened, %d after; from 5 s after the end on %d in 30 s", before, opened.Sub(out), after, used)
				require.LessOrEqual(t, opened.Sub(out), c.opens)
				require.LessOrEqual(t, after, 18)
				if c.accounts > 3 {
					require.GreaterOrEqual(t, after, 14, "the probes")
					require.GreaterOrEqual(t, used, rps*30*95/100)
				}
			})
		})
	}
}

// Upstream fails in part, as one bad replica of two makes it: calls go on at the
// full budget.
func TestAPartialOutageIsNone(t *testing.T) {
	for _, c := range []struct {
		name    string
		rps     int
		lasts   time.Duration
		percent int // of calls that fail
		fails   contract.FailedAttempt
	}{
		{"half, 20 a second", 20, 30 * time.Minute, 50, broken},
		{"half, 1 a second", 1, 30 * time.Minute, 50, broken},
		{"half denied, 20 a second", 20, 30 * time.Minute, 50, denied},
		{"half denied, 200 a second", 200, 10 * time.Minute, 50, denied},
		{"a tenth denied, 20 a second", 20, 30 * time.Minute, 10, denied},
		{"three fifths, 20 a second", 20, 30 * time.Minute, 60, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().Add(time.Minute)
				random := rand.New(rand.NewPCG(3, 4))
				f := &fleet{fails: func(_ int, at time.Time) *contract.FailedAttempt {
					if at.Before(begin) || random.IntN(100) >= c.percent {
						return nil
					}
					return &c.fails
				}}
				f.run(c.rps, 200*c.rps, time.Minute+c.lasts)
				used := float64(f.between(begin, begin.Add(c.lasts))) / (float64(c.rps) * c.lasts.Seconds())
				t.Logf("opened %d times, %.1f%% of the budget used", len(f.opened), 100*used)
				require.LessOrEqual(t, len(f.opened), 1, "before it is known that some succeed")
				require.GreaterOrEqual(t, used, 0.95)
			})
		})
	}
}

// One worker of three has the trouble, no way out of its machine, say, or a token of
// its own that has expired: the others go on, with its share as well, and it is back
// once its trouble has passed.
func TestOneWorkersTroubleStopsNobodyElse(t *testing.T) {
	const rps = 20
	for _, c := range []struct {
		name  string
		fails contract.FailedAttempt
	}{
		{"401", denied},
		{"timeout", contract.FailedAttempt{Class: contract.ClassTransient, Reason: "timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now().Add(30 * time.Second)
				end := begin.Add(2 * time.Minute)
				f := &fleet{fails: func(worker int, at time.Time) *contract.FailedAttempt {
					if worker != 1 || at.Before(begin) || !at.Before(end) {
						return nil
					}
					return &c.fails
				}}
				f.run(rps, 2000, 3*time.Minute)
				found := begin.Add(5 * time.Second)
				good := float64(between(f.succeeded, found, end)) / (rps * end.Sub(found).Seconds())
				failed := f.between(begin, end) - between(f.succeeded, begin, end)
				after := float64(f.between(end.Add(20*time.Second), end.Add(30*time.Second))) / (rps * 10)
				t.Logf("opened %d times, %d calls failed, others used %.1f%% of the budget, after it %.1f%%", len(f.opened), failed, 100*good, 100*after)
				require.GreaterOrEqual(t, good, 0.9)
				require.LessOrEqual(t, failed, 60)
				require.GreaterOrEqual(t, after, 0.9)
				require.False(t, f.budget.Breaker.Open)
			})
		})
	}
}
