package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/bridge/lease"
	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/internal/process"
)

// loopLease is what the bridges below are given; everything is to be over long
// before the group would miss a member.
const (
	loopLease      = 6 * time.Second
	sessionTimeout = 45 * time.Second
	takeOver       = 15 * time.Second
)

// TestStuckLoopLeavesTheGroup blocks each loop in turn, with whatever locks it
// holds there: the bridge says so at /livez, leaves the group and ends with an
// error, and another member has its partitions long before the session timeout.
// These run outside of a bubble: a goroutine that waits for a lock stops the
// clock in one.
func TestStuckLoopLeavesTheGroup(t *testing.T) {
	for name, block := range map[string]struct {
		protocol string
		loop     string
		by       func(w *world, metrics *hooked, hang chan struct{})
	}{
		"poll": {"classic", "poll", func(_ *world, metrics *hooked, hang chan struct{}) {
			metrics.set(func(name string) { hangOn(name, "bridge.records", hang) })
		}},
		"poll, KIP-848": {"consumer", "poll", func(_ *world, metrics *hooked, hang chan struct{}) {
			metrics.set(func(name string) { hangOn(name, "bridge.records", hang) })
		}},
		"committer": {"classic", "committer", func(_ *world, metrics *hooked, hang chan struct{}) {
			metrics.set(func(name string) { hangOn(name, "bridge.commits", hang) })
		}},
		"lane": {"classic", "lane ", func(w *world, _ *hooked, hang chan struct{}) {
			w.temporal.set(func(request string) error { hangOn(request, "signal", hang); return nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			t.Cleanup(w.close)
			hang := make(chan struct{})
			t.Cleanup(func() { close(hang) })

			config := w.config()
			config.Kafka.GroupProtocol = block.protocol
			config.Kafka.SessionTimeout = sessionTimeout
			config.Kafka.CommitInterval = 100 * time.Millisecond
			config.Dispatch.SignalTimeout = 200 * time.Millisecond
			config.Loop.Lease = loopLease
			config.Settle.Time, config.Settle.Delay = time.Second, 2*time.Second
			config.Common.StatusAddr = freeAddress(t)
			metrics := new(hooked)
			stuck := w.start(config, metrics, nil)
			w.until("the first has everything", func() bool { return stuck.owned() == partitions })

			block.by(w, metrics, hang)
			w.produce(2 * partitions)
			began := time.Now()
			w.until("/livez fails", func() bool { return livez(config.Common.StatusAddr) != "" })
			require.Less(t, time.Since(began), loopLease+5*time.Second)
			said := livez(config.Common.StatusAddr)

			second := w.config()
			second.Kafka.GroupProtocol = block.protocol
			other := w.start(second, nil, nil)
			w.until("another takes over", func() bool { return other.owned() == partitions })
			require.Less(t, time.Since(began), loopLease+takeOver, "long before the session timeout")
			<-stuck.ended
			require.Less(t, stuck.took.Sub(began), loopLease+takeOver)

			var why lease.StuckError
			require.ErrorAs(t, stuck.err, &why)
			if block.loop == "poll" { // which holds what the committer waits for
				require.Contains(t, []string{"poll", "committer"}, why.Loop)
			} else {
				require.Contains(t, why.Loop, block.loop)
			}
			require.Contains(t, said, "has not turned for")
			t.Logf("ended with %v, %s after the block", stuck.err, stuck.took.Sub(began).Round(time.Millisecond))

			// As the command ends.
			var out bytes.Buffer
			code := process.Run(t.Context(), "bridge", []string{"run"}, []process.Command{{
				Name: "run", Run: func(context.Context, *process.Invocation) error { return stuck.err },
			}}, func(string) (string, bool) { return "", false }, &out, &out)
			require.Equal(t, process.ExitFailed, code)
			require.Contains(t, out.String(), "has not turned for")
		})
	}
}

// TestHangingWatcherLeavesTheGroup: its loop goes round and its requests never
// come back, whatever their deadline says.
func TestHangingWatcherLeavesTheGroup(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		hang := make(chan struct{})
		defer close(hang)
		stuck := w.start(w.config(), nil, nil)
		w.until("the first has everything", func() bool { return stuck.owned() == partitions })
		w.temporal.set(func(request string) error { hangOn(request, "end", hang); return nil })
		w.produce(1)
		began := time.Now()
		<-stuck.ended
		// Its first look is due with the run, and may take as long as a poll.
		require.Less(t, time.Since(began), 30*time.Second+service.DefaultConfig().WatcherLease()+5*time.Second)
		var why lease.StuckError
		require.ErrorAs(t, stuck.err, &why)
		require.Equal(t, "watcher", why.Loop)

		w.temporal.set(nil)
		other := w.start(w.config(), nil, nil)
		began = time.Now()
		w.until("another takes over", func() bool { return other.owned() == partitions })
		require.Less(t, time.Since(began), takeOver)
	})
}

// TestDependenciesThatAreAwayAreNoReasonToLeave: errors are answers.
func TestDependenciesThatAreAwayAreNoReasonToLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(w.config(), nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		w.temporal.set(func(string) error { return errors.New("away") })
		w.produce(20)
		time.Sleep(10 * time.Minute)
		select {
		case <-b.ended:
			t.Fatal(b.err)
		default:
		}
		w.temporal.set(nil)
		w.until("all is committed", func() bool { return w.committed() == 20 })
	})
}

// TestCommitsAreRarerThanTheLoopLease: the committer has nothing to do in between.
func TestCommitsAreRarerThanTheLoopLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		config := w.config()
		config.Kafka.CommitInterval = 45 * time.Second
		b := w.start(config, nil, nil)
		w.until("it has everything", func() bool { return b.owned() == partitions })
		time.Sleep(5 * time.Minute)
		select {
		case <-b.ended:
			t.Fatal(b.err)
		default:
		}
	})
}

// hangOn hangs where name is the one.
func hangOn(name, one string, hang chan struct{}) {
	if name == one {
		<-hang
	}
}

// livez returns what /livez complains of.
func livez(address string) string { return complaint(address, "livez") }

// complaint returns what that page complains of; empty if it does not.
func complaint(address, page string) string {
	response, err := http.Get("http://" + address + "/" + page)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusOK {
		return ""
	}
	return string(text)
}
