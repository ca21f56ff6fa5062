package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestBridgeKilledRightAfterSignals: what Temporal has accepted is not
// committed yet, so another bridge meets it again.
func TestBridgeKilledRightAfterSignals(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	_, bridge := p.startBoth()
	p.change("alice", "bob")
	p.await("runs started", func() bool { return p.started("alice") && p.started("bob") })
	p.kill(bridge)
	p.change("alice") // told while nobody listens
	p.start("bridge")
	p.drained()
	v := p.verdict()
	p.noWaste(v)
	if n := p.calls("bob"); n != 1 {
		t.Errorf("%d calls for bob, whose one change was delivered twice", n)
	}
}

// TestBridgeKilledBeforeCommit: everything is written, nothing is committed.
func TestBridgeKilledBeforeCommit(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.start("worker")
	bridge := p.start("bridge", "COMMIT_INTERVAL=1m")
	var accounts []string
	for i := range 10 {
		accounts = append(accounts, fmt.Sprintf("account-%d", i))
	}
	p.change(accounts...)
	p.change(accounts...)
	const records = 20
	p.await("all covered", func() bool { return p.watermark(bridge) == records })
	before := len(p.upstream.Calls())
	if lag := p.lag(); lag != records {
		t.Fatalf("lag %d, want %d: the kill would prove nothing", lag, records)
	}
	p.kill(bridge)
	p.start("bridge")
	p.drained()
	p.noWaste(p.verdict())
	if after := len(p.upstream.Calls()); after != before {
		t.Errorf("%d calls for changes that were delivered again", after-before)
	}
}

// TestBridgesKilledUnderLoad kills one of two bridges again and again; the other
// takes over its partitions.
func TestBridgesKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, "KAFKA_GROUP_PROTOCOL="+protocol)
			p.start("worker")
			bridges := []*stack.Process{p.start("bridge"), p.start("bridge")}
			p.traffic(load.Config{Accounts: 20, Rate: 6, Seed: 12})
			var ready func() bool
			if protocol == "classic" {
				// A member of a classic group that dies while it joins holds the
				// others up for the whole rebalance timeout, a minute.
				ready = func() bool { return p.partitions(bridges[0]) > 0 && p.partitions(bridges[1]) > 0 }
			}
			kills := p.torment(20*time.Second, bridges, ready)
			p.drained()
			v := p.verdict()
			// The worker lived, so every call was written; killing bridges costs none.
			p.noWaste(v)
			if len(kills) < 3 {
				t.Errorf("only %d kills", len(kills))
			}
			t.Logf("%d kills, %d changes, %d calls", len(kills), len(p.load.Changes()), len(v.calls))
		})
	}
}

// TestRebalance: the second bridge joins, takes partitions, and dies.
func TestRebalance(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.start("worker")
	first := p.start("bridge")
	second := p.start("bridge")
	p.await("partitions shared", func() bool { return p.partitions(first) == 2 && p.partitions(second) == 2 })
	var accounts []string
	for i := range 12 { // on all partitions
		accounts = append(accounts, fmt.Sprintf("account-%d", i))
	}
	p.change(accounts...)
	p.await("runs started", func() bool { return p.started(accounts[0]) && p.started(accounts[11]) })
	p.kill(second)
	p.change(accounts...)
	p.await("first has all partitions", func() bool { return p.partitions(first) == 4 })
	p.drained()
	p.noWaste(p.verdict())
}

// TestOffsetsReset: a group that starts again from the beginning makes no calls,
// because the rows account for every record.
func TestOffsetsReset(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	_, bridge := p.startBoth()
	p.change("alice", "bob", "carol")
	p.drained()
	p.change("alice", "alice")
	p.drained()
	p.terminate(bridge, patience)
	before := len(p.upstream.Calls())
	zero := kadm.Offsets{}
	for partition := range int32(4) {
		zero.AddOffset(p.topic, partition, 0, -1)
	}
	_, err := world.kafka.CommitOffsets(t.Context(), p.name, zero)
	p.must(err)
	if lag := p.lag(); lag != 5 {
		t.Fatalf("lag %d after the reset, want 5", lag)
	}
	p.start("bridge")
	p.drained()
	p.noWaste(p.verdict())
	if after := len(p.upstream.Calls()); after != before {
		t.Errorf("%d calls after the reset", after-before)
	}
}
