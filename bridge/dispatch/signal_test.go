package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func TestRefusedAccountIsLeftAloneWhateverComesIn(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		tries := 0
		b.temporal.fail = func(string) error {
			tries++
			return serviceerror.NewResourceExhausted(0, "busy workflow")
		}
		for range 600 {
			b.change(t, "alice")
			pass(100 * time.Millisecond)
		}
		require.Less(t, tries, 20, "a minute of backing off")
	})
}

func TestInvalidSignalBecomesADeadLetterAlone(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		const poison = 5
		b.temporal.refuse = func(changes contract.Changes) error {
			for _, r := range changes.Ranges {
				if r.Contains(source, contract.Position{Offset: poison}) {
					return serviceerror.NewInvalidArgument("bad input")
				}
			}
			return nil
		}
		for range 8 {
			b.change(t, "alice")
		}
		pass(time.Minute)
		require.Empty(t, b.refused, "nobody's signals pass: it may be everybody's fault")

		b.change(t, "bob")
		pass(time.Minute)
		require.Len(t, b.refused, 1)
		require.EqualValues(t, poison, b.refused[0].Position.Offset)
		require.Zero(t, b.held())
		b.temporal.finish(alice, complete)
		b.temporal.finish("crm/account/bob", complete)
		pass(time.Minute)
		require.EqualValues(t, 9, b.watermark())
	})
}

// TestStartsRefusedToAllAreNobodysFault: a task queue that Temporal does not take,
// say. Signals to runs that are open pass, which says nothing of that.
func TestStartsRefusedToAllAreNobodysFault(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.temporal.begin("crm/account/bob", run.Start{Due: time.Now().Add(time.Hour)})
		invalid := serviceerror.NewInvalidArgument("task queue name length exceeds limit")
		b.temporal.refuseStart = func(string) error { return invalid }
		for i := range 10 {
			b.change(t, "bob")
			b.change(t, fmt.Sprint("account-", i))
			pass(2 * time.Second)
		}
		require.Empty(t, b.refused)
		require.Equal(t, 10, b.held())

		b.temporal.mu.Lock()
		b.temporal.refuseStart = func(workflowID string) error {
			if workflowID == "crm/account/account-7" {
				return invalid
			}
			return nil
		}
		b.temporal.mu.Unlock()
		pass(time.Minute)
		require.Equal(t, 9, b.temporal.started)
		require.Len(t, b.refused, 1, "now it is that one's")
		require.Equal(t, "account-7", b.refused[0].Account)
		require.Zero(t, b.held())
	})
}

// TestEachSignalTakesAPlace: what comes after a signal does not share its place.
func TestEachSignalTakesAPlace(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(2 * time.Second)
		require.Zero(t, b.held())
		b.temporal.mu.Lock()
		b.temporal.fail = func(string) error { return errors.New("away") }
		b.temporal.mu.Unlock()
		b.change(t, "alice")
		pass(2 * time.Second)
		require.Equal(t, 1, b.held(), "being signalled")
		b.change(t, "alice")
		b.change(t, "alice")
		pass(time.Second)
		require.Equal(t, 2, b.held(), "and the next")
	})
}

// TestOldestIsNotOfAnotherBridge: what was taken away is answered for there, also
// while it waits here for an answer of Temporal's.
func TestOldestIsNotOfAnotherBridge(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		b.change(t, "alice")
		pass(5 * time.Second) // a run has it
		b.temporal.fail = func(string) error { return errors.New("away") }
		b.change(t, "bob")
		pass(5 * time.Second) // its signal is being retried
		b.assignment.Drop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, found := b.Oldest(ctx)
		require.False(t, found)
		_, found, _ = b.Find(ctx, source, 0)
		require.False(t, found)
		b.assign(2)
		b.change(t, "carol")
		oldest, found := b.Oldest(ctx)
		require.True(t, found)
		require.Equal(t, "carol", oldest.Account)
	})
}

func TestSignalCarriesTheGreatestVersion(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bridge) {
		for _, text := range []string{"7", "9", "8"} {
			version, err := contract.ParseVersion(text)
			require.NoError(t, err)
			b.changeTo(t, "alice", version)
		}
		pass(2 * time.Second)
		require.Equal(t, "9", b.temporal.signals[0].Ranges[0].Version.String())
	})
}
