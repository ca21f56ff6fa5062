package startup

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quiesce-io/quiesce/deploy/local/proxy"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// Whoever waits when a signal comes would wait for patientStart; whoever works
// gets shutdownGrace. A stop takes no longer than stopBound: of the first it
// proves that it was the signal, of the second that the grace holds.
const (
	patientStart  = 50 * time.Second
	shutdownGrace = 5 * time.Second
	stopBound     = shutdownGrace + 7*time.Second
)

// stage is a moment at which a signal comes.
type stage struct {
	name   string
	binary string
	args   []string // nil: run
	env    []string
	// until returns once the process has come to the stage.
	until func(t *testing.T, r *running)
	code  int
}

func output(text string) func(*testing.T, *running) {
	return func(t *testing.T, r *running) {
		t.Helper()
		if _, err := r.WaitOutput(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func closed(c <-chan struct{}) func(*testing.T, *running) {
	return func(t *testing.T, r *running) {
		t.Helper()
		await(t, r.Name+" waits", func() bool {
			select {
			case <-c:
				return true
			default:
				return !r.Running()
			}
		})
	}
}

func ready(t *testing.T, r *running) { t.Helper(); r.awaitReady() }

// TestSignals: SIGINT, as from Ctrl-C, and SIGTERM end both processes at every
// stage, in good order and within their bound.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for _, s := range stages(t) {
			t.Run(fmt.Sprintf("%s/%s/%s", s.binary, s.name, signal), func(t *testing.T) {
				t.Parallel()
				r := stoppable(t, s)
				if err := r.Signal(signal); err != nil {
					t.Fatal(err)
				}
				took := ends(t, r.Process, stopBound)
				t.Logf("ended after %s", took.Round(time.Millisecond))
				if code := r.ExitCode(); code != s.code {
					t.Errorf("exit code %d, want %d", code, s.code)
				}
			})
		}
	}
}

// stoppable starts a process and brings it to the stage.
func stoppable(t *testing.T, s stage) *running {
	t.Helper()
	env := append(usual("START_TIMEOUT="+patientStart.String(), "SHUTDOWN_GRACE="+shutdownGrace.String()), s.env...)
	var r *running
	if s.args != nil {
		r = &running{Process: launch(t, s.binary, s.args, env), t: t}
	} else {
		r = start(t, s.binary, env)
	}
	s.until(t, r)
	if !r.Running() {
		t.Fatal("it has ended by itself")
	}
	return r
}

func stages(t *testing.T) []stage {
	t.Helper()
	var all []stage
	// A listener for each: whoever connects has come to the stage.
	mute := func(binary, name, variable string, args ...string) {
		address, connected := silent(t)
		s := stage{name: name, binary: binary, args: args, env: []string{variable + "=" + address}, until: closed(connected)}
		if args != nil {
			s.code = 1 // what was asked for was not done
		}
		all = append(all, s)
	}
	for _, binary := range []string{"bridge", "worker"} {
		mute(binary, "connecting to a silent Temporal", "TEMPORAL_ADDRESS")
		refusing := refusing(t, world.Temporal.Address, codes.PermissionDenied, everything)
		all = append(all,
			stage{name: "waiting for Temporal", binary: binary, env: []string{"TEMPORAL_ADDRESS=" + unused}, until: output("waiting for Temporal")},
			stage{name: "waiting for permission", binary: binary, env: []string{"TEMPORAL_ADDRESS=" + refusing.Address}, until: output("waiting for Temporal")},
			stage{name: "waiting for the namespace", binary: binary, env: []string{"TEMPORAL_NAMESPACE=nowhere"}, until: output("waiting for Temporal")},
			stage{name: "at work", binary: binary, until: ready},
		)
	}
	mute("bridge", "connecting to a silent Kafka", "KAFKA_BROKERS")
	mute("worker", "connecting to a silent Spanner", "SPANNER_EMULATOR_HOST")
	mute("worker", "migrating a silent Spanner", "SPANNER_EMULATOR_HOST", "migrate")
	mute("worker", "a command with a silent Temporal", "TEMPORAL_ADDRESS", "parked", "list")
	all = append(all,
		stage{name: "waiting for a topic", binary: "bridge", env: []string{"KAFKA_TOPICS=nowhere"}, until: output("waiting for Kafka")},
		stage{name: "waiting for the clocks", binary: "bridge", env: clocksApart(t), until: output("clock is off")},
		stage{name: "checking the schema", binary: "worker", env: heldSchema(t), until: func(t *testing.T, r *running) { t.Helper(); output("connecting to Spanner")(t, r) }},
		stage{name: "waiting for the budget", binary: "worker", env: []string{"UPSTREAM_RPS=1"}, until: ready},
	)
	return all
}

// heldSchema leads to a Spanner whose answers about the schema never come.
func heldSchema(t *testing.T) []string {
	t.Helper()
	x, err := proxy.NewGRPC(world.Spanner.EmulatorHost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	x.Hold("ExecuteStreamingSql")
	return []string{"SPANNER_EMULATOR_HOST=" + x.Address}
}

// working starts a pipeline whose one call upstream is under way and takes
// longer than anything here waits, and returns its processes.
func working(t *testing.T) (bridge, worker *running) {
	t.Helper()
	simulator, url, err := world.ServeUpstream(0, upstream.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	brokers, _ := cluster(t)
	env := append(usual("SHUTDOWN_GRACE="+shutdownGrace.String(), "UPSTREAM_URL="+url, "UPSTREAM_TIMEOUT=40s", "PARK_AFTER=2", "MAX_DETECTION_DELAY=10m"), onCluster(brokers)...)
	worker, bridge = start(t, "worker", env), start(t, "bridge", env)
	worker.awaitReady()
	bridge.awaitReady()
	simulator.Inject("", upstream.Fault{Kind: upstream.Hang})
	produce(t, brokers, "slow")
	await(t, "the call", func() bool { return len(simulator.CallsOf("slow")) > 0 })
	return bridge, worker
}

// TestSignalsWhileDraining: with a call under way that takes longer than the
// grace, the first signal ends the process within that, and the second at once.
func TestSignalsWhileDraining(t *testing.T) {
	t.Parallel()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		bridge, worker := working(t)
		for _, r := range []*running{worker, bridge} {
			if err := r.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			took := ends(t, r.Process, stopBound)
			t.Logf("%s ended after %s with exit code %d", r.Name, took.Round(time.Millisecond), r.ExitCode())
			if r.ExitCode() != 0 {
				t.Errorf("%s: exit code %d", r.Name, r.ExitCode())
			}
		}
	})
	t.Run("two", func(t *testing.T) {
		t.Parallel()
		_, worker := working(t)
		began := time.Now()
		if err := worker.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		await(t, "it stops", func() bool {
			text, _ := worker.Output()
			return strings.Contains(text, "a second signal ends it at once")
		})
		if err := worker.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		ends(t, worker.Process, stopBound)
		if took := time.Since(began); took > shutdownGrace {
			t.Errorf("the second signal was not at once: %s", took)
		}
		if code := worker.ExitCode(); code != -1 {
			t.Errorf("exit code %d: it was not the signal that ended it", code)
		}
	})
}
