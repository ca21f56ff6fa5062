package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newMonitor returns one whose budget nobody has granted anything.
func newMonitor() *Monitor {
	return NewMonitor(budget.NewFleet(budget.Config{}, nil, telemetry.Discard, quiet), quiet)
}

// granted returns a Monitor of a worker that is alone.
func granted(t *testing.T, rps int) *Monitor {
	granter := &fleet{random: rand.New(rand.NewPCG(1, 2)), budget: allot.New(time.Now().Add(-contract.ShareTTL))}
	shares := budget.NewFleet(budget.Config{UpstreamRPS: rps}, granter, telemetry.Discard, quiet)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = shares.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return NewMonitor(shares, quiet)
}

// What calls failed with.
var (
	broken = contract.FailedAttempt{Class: contract.ClassTransient, Reason: "500"}
	denied = contract.FailedAttempt{Class: contract.ClassDenied, Reason: "401"}
)

func call(ctx context.Context, m *Monitor) error {
	p, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	p.Sent()
	return nil
}

func open(m *Monitor) {
	for i := range openAfter { // denied: at once
		m.Failed(fmt.Sprint("account ", i%2), denied)
	}
}

// The constant-memory record answers like a full list of events.
func TestChargedAgainstAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMonitor()
		type success struct {
			account string
			at      time.Time
		}
		var all []success
		account := rapid.SampledFrom([]string{"a", "b", "c"})
		second := rapid.Int64Range(1, 20)
		for range rapid.IntRange(0, 12).Draw(rt, "n") {
			s := success{account.Draw(rt, "account"), time.Unix(second.Draw(rt, "at"), 0)}
			all = append(all, s)
			m.Succeeded(s.account, s.at)
		}
		me, since := account.Draw(rt, "me"), time.Unix(second.Draw(rt, "since"), 0)
		want := false
		for _, s := range all {
			want = want || s.account != me && s.at.After(since)
		}
		if got := m.Charged(me, since); got != want {
			rt.Fatalf("charged %v, want %v", got, want)
		}
		if m.Charged(me, time.Time{}) {
			rt.Fatal("a first failure was charged")
		}
	})
}

func TestThrottledIsChargedOnlyToOneWhoIsAlone(t *testing.T) {
	m := newMonitor()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	m.Throttled("a", at(10))
	m.Succeeded("b", at(11))
	require.True(t, m.ChargedThrottled("a", at(10)), "only a is throttled")
	m.Throttled("c", at(12))
	require.False(t, m.ChargedThrottled("a", at(10)), "c is throttled too: overload")
	require.True(t, m.Charged("a", at(10)))
	require.False(t, m.ChargedThrottled("a", at(13)), "nobody succeeded since")
}

func TestOpensOnlyWhereNothingSucceeds(t *testing.T) {
	const row = "abababababababababababababababab"
	for _, c := range []struct {
		name  string
		every time.Duration
		kind  contract.FailedAttempt
		calls string // a letter is a failed call of that account, . a success
		want  bool
	}{
		{"ten of two in a second", 112 * time.Millisecond, broken, "aababababa", true},
		{"nine", 400 * time.Millisecond, broken, row[:openAfter-1], false},
		{"five in five seconds", 1250 * time.Millisecond, broken, "aabab", true},
		{"four", time.Minute, broken, "abab", false},
		{"one account alone", time.Second, broken, "aaaaaaaaaa", false},
		{"one account, then another", 2 * time.Second, broken, "aaaab", true},
		{"a success between", time.Second, broken, "abab.abab", false},
		{"many at one moment", time.Millisecond, broken, row, false},
		{"denied, at one moment", 0, denied, row[:openAfter], true},
		{"denied, nine", 100 * time.Millisecond, denied, row[:openAfter-1], false},

		{"in part: a row that chance makes", time.Second, broken, "ab." + row[:mixedAfter-1], false},
		{"in part: a longer one", time.Second, broken, "ab." + row[:mixedAfter], true},
		{"in part: denied", time.Second, denied, "ab." + row[:mixedAfter-1], false},
		{"in part: still", time.Second, broken, "ab" + strings.Repeat(".", unmixed) + row[:openAfter], false},
		{"in part: not in a row", time.Second, broken, "ab" + strings.Repeat(".", unmixed) + "a" + strings.Repeat(".", unmixed-1) + row[:openAfter], false},
		{"in part: no more", time.Second, broken, "ab" + strings.Repeat(".", unmixed+1) + row[:openAfter], true},
		{"one account's failures are no part", time.Second, broken, "aaa." + row[:openAfter], true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMonitor()
				for i, b := range c.calls {
					if i > 0 {
						time.Sleep(c.every)
					}
					if b == '.' {
						m.Succeeded("z", time.Unix(1, 0))
					} else {
						m.Failed(string(b), c.kind)
					}
				}
				require.Equal(t, c.want, m.State().Open)
			})
		})
	}
}

func TestCause(t *testing.T) {
	m := newMonitor()
	open(m)
	require.Equal(t, "401 for everybody", m.State().Cause)
	require.False(t, m.State().Since.IsZero())

	b := new(told)
	m = NewMonitor(b, quiet)
	open(m)
	b.outage.Open = true
	before := len(b.log)
	m.Failed("x", contract.FailedAttempt{Class: contract.ClassTransient, Reason: "timeout"})
	require.Len(t, b.log, before, "the budget knows")
}

func TestOpenLetsOnlyProbesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := granted(t, 1000)
		open(m)
		var calls atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for {
					err := call(ctx, m)
					if err != nil {
						if !errors.Is(err, ErrOutage) || !errors.Is(err, context.DeadlineExceeded) {
							panic(err)
						}
						return
					}
					calls.Add(1)
					m.Failed("probe", denied)
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, calls.Load(), int32(10))
		require.LessOrEqual(t, calls.Load(), int32(15))
	})
}

func TestSuccessClosesAndWakesEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := granted(t, 1000)
		open(m)
		var wg sync.WaitGroup
		start := time.Now()
		for range 20 {
			wg.Go(func() {
				if err := call(t.Context(), m); err != nil {
					panic(err)
				}
				m.Succeeded("probe", time.Unix(1, 0))
			})
		}
		wg.Wait()
		require.LessOrEqual(t, time.Since(start), allot.ProbeEvery+2*time.Second)
		require.False(t, m.State().Open)
	})
}

// Those who stand in the budget's queue when the breaker opens must not call.
func TestOpeningReachesTheBudgetsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := granted(t, 1)
		require.NoError(t, call(t.Context(), m))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var calls atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if call(ctx, m) == nil {
					calls.Add(1)
				}
			})
		}
		synctest.Wait()
		open(m)
		wg.Wait()
		require.Zero(t, calls.Load())
	})
}
