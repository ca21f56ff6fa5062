package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.temporal.io/api/serviceerror"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// admit admits and submits a change if there is room.
func (b *bridge) admit(gate *buffer.Gate, account string) bool {
	c := buffer.Change{
		Account: account, Source: source, Position: contract.Position{Offset: b.next}, Time: time.Now(), Assignment: b.assignment,
	}
	if !gate.Admit(c.Size(), 1) {
		return false
	}
	b.next++
	b.assignment.See(c.Position, c.Time)
	b.Submit(c)
	return true
}

func (b *bridge) commit() {
	if c, changed := b.assignment.Pending(); changed {
		b.assignment.Committed(c)
	}
}

// delays runs 20 accounts with a change every 2 seconds for a minute, beside an
// account with hot changes a second, and returns how long after its change each
// signal of the others came, sorted.
func delays(t *testing.T, hot int) (sorted []time.Duration) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.fail = func(string) error { time.Sleep(5 * time.Millisecond); return nil }
		gate := b.buffer.Gate(b.assignment)
		const tick = 10 * time.Millisecond
		made := map[string]time.Time{}
		most := 0
		for i := range int(time.Minute / tick) {
			for range hot / 100 {
				require.True(t, b.admit(gate, "alice"), "never refused")
			}
			if i%10 == 0 {
				account := fmt.Sprint("account-", i/10%20)
				made[fmt.Sprint(account, i/200)] = time.Now()
				require.True(t, b.admit(gate, account))
			}
			records, bytes := b.buffer.Held()
			most = max(most, records)
			require.LessOrEqual(t, bytes, int64(buffer.DefaultConfig().Bytes))
			pass(tick)
			if i%3100 == 3099 { // a call of each a half minute
				for id := range b.temporal.ids() {
					b.temporal.finish(id, complete)
				}
			}
			if i%100 == 0 {
				b.commit()
			}
		}
		require.Less(t, most, 200, "places are for signals, not for changes")
		pass(5 * time.Second)

		signals := 0
		seen := map[string]int{}
		for _, s := range b.temporal.signals {
			if s.account == alice {
				signals++
				require.LessOrEqual(t, len(s.Ranges), 4, "however many changes")
				continue
			}
			account := s.account[len("crm/account/"):]
			sorted = append(sorted, s.at.Sub(made[fmt.Sprint(account, seen[account])]))
			seen[account]++
		}
		require.LessOrEqual(t, signals, 66, "one a second")
		if hot > 0 {
			t.Logf("%d changes of one account in a minute: %d signals, at most %d places taken", 60*hot, signals, most)
		}
		for id := range b.temporal.ids() {
			b.temporal.finish(id, complete)
		}
		pass(30 * time.Second)
		require.Equal(t, b.next, b.watermark(), "nothing is lost")
		require.Zero(t, b.held())
		_, bytes := b.buffer.Held()
		require.Zero(t, bytes)
	})
	slices.Sort(sorted)
	return sorted
}

// TestHotAccountDisturbsNobody: 10,000 changes a second for a minute.
func TestHotAccountDisturbsNobody(t *testing.T) {
	without, with := delays(t, 0), delays(t, 10_000)
	require.Equal(t, len(without), len(with))
	p99 := func(d []time.Duration) time.Duration { return d[len(d)*99/100-1] }
	t.Logf("p99 from change to signal of the others: %s without, %s with", p99(without), p99(with))
	require.LessOrEqual(t, p99(with), p99(without)*11/10)
}

// TestHotAccountDuringAnOutage: what keeps coming does not bring retries forward,
// and stays within the bounds.
func TestHotAccountDuringAnOutage(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		tries := 0
		b.temporal.fail = func(string) error { tries++; return serviceerror.NewUnavailable("away") }
		gate := b.buffer.Gate(b.assignment)
		refused := 0
		for range 6000 {
			for range 100 {
				if !b.admit(gate, "alice") {
					refused++
					break
				}
			}
			pass(10 * time.Millisecond)
		}
		_, bytes := b.buffer.Held()
		require.LessOrEqual(t, bytes, int64(buffer.DefaultConfig().Bytes))
		require.Positive(t, refused, "BUFFER_BYTES holds it")
		require.Less(t, tries, 40, "a minute, backed off")
		b.temporal.mu.Lock()
		b.temporal.fail = nil
		b.temporal.mu.Unlock()
		pass(30 * time.Second)
		require.Zero(t, b.held())
		b.temporal.finish(alice, complete)
		pass(30 * time.Second)
		require.Equal(t, b.next, b.watermark())
	})
}

// TestStuckHeadCanStillBeSignalled: whatever the bounds and whoever comes, an
// account that is stuck at the head takes nobody's chance to be signalled, its
// own included, and all ends well once it completes.
func TestStuckHeadCanStillBeSignalled(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cfg := buffer.Config{
			Records:        rapid.IntRange(1, 6).Draw(r, "records"),
			Bytes:          1 << 16,
			MaxUncommitted: rapid.IntRange(2, 60).Draw(r, "uncommitted"),
		}
		seed := rapid.Uint64().Draw(r, "seed")
		inBridgeOf(t, cfg, func(t *testing.T, b *bridge) {
			random := rand.New(rand.NewPCG(seed, 1))
			gate := b.buffer.Gate(b.assignment)
			require.True(t, b.admit(gate, "alice"))
			pass(2 * time.Second)
			// Others come and are covered, until the stuck head has filled the bound.
			full := 0
			for full < 20 {
				account := fmt.Sprint("account-", random.IntN(5))
				if random.IntN(4) == 0 {
					account = "alice"
				}
				if !b.admit(gate, account) {
					full++
				}
				pass(time.Duration(random.IntN(400)) * time.Millisecond)
				for i := range 5 {
					if id := fmt.Sprint("crm/account/account-", i); b.temporal.isOpen(id) && random.IntN(3) == 0 {
						b.temporal.finish(id, complete)
					}
				}
				b.commit()
				require.LessOrEqual(t, b.ledger.Uncommitted(), cfg.MaxUncommitted)
			}
			require.Zero(t, b.watermark(), "the head is stuck")
			pass(5 * time.Second)
			require.Zero(t, b.held(), "everything that was admitted has been signalled, the head as well")
			// Its run breaks off: signalled again although the bound is reached.
			started := b.temporal.started
			b.temporal.finish(alice, broken)
			pass(time.Minute + 5*time.Second) // before it is due it is looked at every minute
			require.Greater(t, b.temporal.started, started)
			for b.watermark() < b.next {
				for id := range b.temporal.ids() {
					b.temporal.finish(id, complete)
				}
				pass(time.Second)
				b.commit()
			}
			require.True(t, b.admit(gate, "alice"), "and fetching goes on")
			pass(2 * time.Second)
		})
	})
}

// TestRunThatWaitsForDaysStaysFarFromTheLimits: Temporal ends a run at 10,000
// signals. One whose call is held up for three days, of an account that changes
// all the time, gets ever fewer.
func TestRunThatWaitsForDaysStaysFarFromTheLimits(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		const days = 3
		for range days * 24 * 60 * 6 {
			b.change(t, "alice")
			pass(10 * time.Second)
		}
		ranges := 0
		for _, s := range b.temporal.signals {
			ranges += len(s.Ranges)
		}
		require.Equal(t, 1, b.temporal.started)
		t.Logf("%d changes in %d days: %d signals of %d ranges to one run", b.next, days, len(b.temporal.signals), ranges)
		require.Less(t, len(b.temporal.signals), 450)
		require.LessOrEqual(t, ranges, 2*len(b.temporal.signals))
		b.temporal.finish(alice, complete)
		pass(2 * time.Minute)
		require.GreaterOrEqual(t, b.watermark(), b.next-b.next/50, "all but what waits for a signal, 2% of the time at most")
	})
}
