package kafkatest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/quiesce-io/quiesce/bridge/consumer"
)

// A static member that comes back within the session has its partitions again,
// and nobody else notices; whether it was stopped or killed.
func TestStaticMemberRestarts(t *testing.T) {
	for name, kill := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, protocol string) {
				f := newFixture(t, 4)
				f.fill(4, 5)
				cfg := f.config()
				cfg.GroupProtocol, cfg.SessionTimeout = protocol, 20*time.Second
				cfgB := cfg
				cfg.InstanceID, cfgB.InstanceID = "bridge-0", "bridge-1"
				a, b := f.start(cfg), f.start(cfgB)
				untilShared(f, 4, a, b)
				f.untilFlow(a, b)
				before := len(a.sink.all()) + len(b.sink.all())
				f.fill(4, 5) // in flight when it ends
				f.until("submitted", func() bool { return len(a.sink.all())+len(b.sink.all()) == before+20 })
				had, rebalances := a.partitions(), b.counts.get("bridge.rebalances")
				began := time.Now()
				if kill {
					a.crash()
				} else {
					a.stop()
				}
				again := f.start(cfg)
				untilShared(f, 4, again, b)
				took := time.Since(began)
				require.Equal(t, had, again.partitions())
				f.fill(4, 5)
				f.untilFlow(again, b)
				require.Equal(t, rebalances, b.counts.get("bridge.rebalances"))
				t.Logf("back in %s", took.Round(time.Millisecond))
				again.stop()
				b.stop()
			})
		})
	}
}

// Two processes with one instance ID: the newcomer wins, and the one that was
// there ends and says why.
func TestSecondProcessWithTheSameInstance(t *testing.T) {
	protocols(t, func(t *testing.T, protocol string) {
		f := newFixture(t, 1)
		f.fill(1, 5)
		cfg := f.config()
		cfg.GroupProtocol, cfg.InstanceID = protocol, "bridge-0"
		a := f.start(cfg)
		a.untilSubmitted(5)
		b := f.start(cfg)
		select {
		case <-a.ended:
		case <-time.After(20 * time.Second):
			t.Fatal("it goes on")
		}
		if protocol == consumer.ProtocolClassic {
			require.ErrorIs(t, a.err, kerr.FencedInstanceID)
		} else if !errors.Is(a.err, kerr.FencedInstanceID) {
			// Most heartbeats do not name the instance, so that what ends it is that it
			// cannot join again.
			require.ErrorIs(t, a.err, kerr.UnreleasedInstanceID)
		}
		require.ErrorContains(t, a.err, "KAFKA_INSTANCE_ID=bridge-0: another")
		t.Log(a.err)
		b.untilSubmitted(5)
		f.complete(a.sink.take()...) // too late
		require.Zero(t, f.committedAt(0))
		f.untilFlow(b)
		b.stop()
	})
}
