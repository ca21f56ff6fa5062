package startup

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/proxy"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// out returns what the process says of the dependency, and whether it is out.
func (r *running) out(name string) (at, why string, since time.Time) {
	for _, d := range r.status().Dependencies {
		if d.Name == name {
			return d.At, d.Error, d.OutSince
		}
	}
	return "", "", time.Time{}
}

// awaitOut waits until the process says that the dependency is out, where it
// looked, since when and why.
func awaitOut(t *testing.T, r *running, name, where, why string) {
	t.Helper()
	asked := time.Now()
	await(t, r.Name+" says that "+name+" is out", func() bool {
		_, _, since := r.out(name)
		return !since.IsZero()
	})
	at, text, since := r.out(name)
	t.Logf("after %s: %s, since %s: %s", time.Since(asked).Round(time.Millisecond), at, since.Format(time.TimeOnly), text)
	if !strings.Contains(at, where) || !strings.Contains(text, why) || text == "" || strings.Contains(text, "\n") {
		t.Errorf("%s is out: %q, %q; want %q, %q", name, at, text, where, why)
	}
	if age := time.Since(since); age < 0 || age > patience {
		t.Errorf("%s is out since %s", name, since)
	}
}

// flight is a pipeline whose every dependency is behind a gate.
type flight struct {
	t              *testing.T
	gates          map[string]*proxy.Gate
	bridge, worker *running
	simulator      *upstream.Simulator
	kafka          *kgo.Client
	changes        int
}

func newFlight(t *testing.T) *flight {
	f := &flight{t: t, gates: map[string]*proxy.Gate{}}
	forward := func(name, target string) string {
		g, err := proxy.Forward(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		f.gates[name] = g
		return g.Address()
	}
	brokers, _ := cluster(t, kfake.ListenFn(func(network, address string) (net.Listener, error) {
		g, err := proxy.Listen(network, address)
		if err == nil {
			f.gates["kafka"] = g
		}
		return g, err
	}))
	simulator, url, err := world.ServeUpstream(0, upstream.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	f.simulator = simulator
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	env := append(append(usual(), onCluster(brokers)...),
		"TEMPORAL_ADDRESS="+forward("temporal", world.Temporal.Address),
		"SPANNER_EMULATOR_HOST="+forward("spanner", world.Spanner.EmulatorHost),
		"UPSTREAM_URL=http://"+forward("upstream", host)+"/"+path, "UPSTREAM_TIMEOUT=1s")
	if f.kafka, err = kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.DefaultProduceTopic("changes")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kafka.Close)
	f.worker, f.bridge = start(t, "worker", env), start(t, "bridge", env)
	f.worker.awaitReady()
	f.bridge.awaitReady()
	return f
}

// change changes accounts in the system of record and announces it.
func (f *flight) change() {
	for range 4 {
		f.changes++
		account := fmt.Sprintf("%s-%d", f.t.Name()[strings.LastIndexByte(f.t.Name(), '/')+1:], f.changes)
		f.simulator.Change(account)
		f.kafka.Produce(context.Background(), &kgo.Record{Key: []byte(account)}, nil) // waits for Kafka where that is out
	}
}

// drained waits until every change was called for, written and committed.
func (f *flight) drained() {
	f.t.Helper()
	if err := f.kafka.Flush(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	await(f.t, "all done", func() bool {
		s, written := f.bridge.status(), f.worker.status().Metrics.Counts["sync.outcomes{written}"]
		return len(s.Partitions) == 2 && s.Lag == 0 && written >= int64(f.changes)
	})
}

// TestOutInFlight cuts and silences each dependency, and sees both processes
// live on, name the one that is out and no other, and go on by themselves with
// nothing lost and nobody parked.
func TestOutInFlight(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]proxy.State{"cut": proxy.Cut, "silent": proxy.Silent} {
		for dependency, setting := range map[string]string{
			"temporal": "TEMPORAL_ADDRESS=", "kafka": "KAFKA_BROKERS=", "spanner": "SPANNER_EMULATOR_HOST=", "upstream": "UPSTREAM_URL=http://",
		} {
			t.Run(dependency+" "+name, func(t *testing.T) {
				t.Parallel()
				f := newFlight(t)
				f.change()
				f.drained()
				gate := f.gates[dependency]
				gate.Set(state)
				f.change()
				for r, needs := range map[*running][]string{f.bridge: {"temporal", "kafka"}, f.worker: {"temporal", "spanner", "upstream"}} {
					if slices.Contains(needs, dependency) {
						awaitOut(t, r, dependency, setting+gate.Address(), "")
					}
					// A busy machine may have one of the others answer late, once.
					for _, other := range []string{"temporal", "kafka", "spanner", "upstream"} {
						await(t, fmt.Sprintf("%s finds %s well while only %s is out", r.Name, other, dependency), func() bool {
							_, _, since := r.out(other)
							return other == dependency || since.IsZero()
						})
					}
				}
				f.change()
				gate.Set(proxy.Open)
				for _, r := range []*running{f.bridge, f.worker} {
					await(t, r.Name+" says that "+dependency+" is back", func() bool { _, _, since := r.out(dependency); return since.IsZero() })
					if !r.Running() {
						t.Fatalf("%s has ended", r.Name)
					}
				}
				f.drained()
				if s := f.worker.status(); s.Metrics.Counts["parked.entered"] != 0 {
					t.Error("accounts were parked")
				}
			})
		}
	}
}

// TestMetricsAreLost: an agent that is not there costs nothing but its metrics,
// and how many is told.
func TestMetricsAreLost(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(unused)
	for name, env := range map[string][]string{
		"UDP":    {"DD_AGENT_HOST=127.0.0.1", "DD_DOGSTATSD_PORT=" + port},
		"socket": {"DD_DOGSTATSD_URL=unix:///nowhere/dsd.socket"},
	} {
		for _, binary := range []string{"bridge", "worker"} {
			t.Run(binary+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := start(t, binary, append(slices.Clone(usual()), env...)).awaitReady()
				await(t, "packets are lost", func() bool { return r.status().Metrics.LostPackets > 0 })
				output, _ := r.Output()
				if !strings.Contains(output, "metrics are not reaching the agent") || !strings.Contains(output, strings.SplitN(env[0], "=", 2)[1]) {
					t.Errorf("the log does not say so:\n%s", output)
				}
			})
		}
	}
}
