package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The broker, and so leader, coordinator and controller, goes away and comes
// back with its data while changes flow.
func TestBrokerRestarts(t *testing.T) {
	for name, kill := range map[string]bool{"in order": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			if kill && !on.apache {
				t.Skip("kfake is in this process")
			}
			protocols(t, func(t *testing.T, protocol string) {
				f := newFixture(t, 4)
				cfg := f.config()
				cfg.GroupProtocol = protocol
				a, b := f.start(cfg), f.start(cfg)
				untilShared(f, 4, a, b)
				f.fill(4, 200)
				a.untilSubmitted(1)
				stopA, stopB := a.work(), b.work()
				began := time.Now()
				require.NoError(t, on.restart(t.Context(), kill))
				up := time.Now()
				f.fill(4, 200)
				f.untilAllCommitted()
				t.Logf("broker away for %s; everything committed %s later", up.Sub(began).Round(time.Millisecond), time.Since(up).Round(time.Millisecond))
				stopA()
				stopB()
				require.Less(t, a.stop(), 5*time.Second)
				require.Less(t, b.stop(), 5*time.Second)
			})
		})
	}
}

// No broker at all while the member is told to stop.
func TestStopWhileTheBrokerIsAway(t *testing.T) {
	f := newFixture(t, 2)
	f.fill(2, 5)
	a := f.start(f.config())
	a.untilSubmitted(10)
	a.dialer.cut()
	f.complete(a.sink.take()...)
	took := a.stop()
	require.Less(t, took, 25*time.Second)
	t.Logf("stopped in %s", took)
	b := f.start(f.config())
	f.untilFlow(b)
	b.stop()
}
