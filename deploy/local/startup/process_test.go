package startup

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
)

// usual is the environment in which both binaries start well, with a pipeline
// and a consumer group of its own.
func usual(env ...string) []string {
	name := fmt.Sprintf("startup-%d", world.numbers.Add(1))
	return append(world.Pipeline(name,
		"UPSTREAM_RPS=100", "SETTLE_TIME=200ms", "SETTLE_DELAY=700ms", "MAX_CLOCK_SKEW=100ms", "COMMIT_INTERVAL=200ms",
		"KAFKA_SESSION_TIMEOUT=6s", "STATUS_ADDR=none").Env(), env...)
}

// launch starts a command of a binary.
func launch(t *testing.T, binary string, args, env []string) *stack.Process {
	t.Helper()
	p := process(t, binary, args, env)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// process returns a process that is killed when the test ends, and then shows
// its last words if that failed.
func process(t *testing.T, binary string, args, env []string) *stack.Process {
	t.Helper()
	name := fmt.Sprintf("startup-%s-%d", binary, world.numbers.Add(1))
	p := &stack.Process{Name: name, Path: world.binaries[binary], Args: args, Env: env, LogFile: filepath.Join(world.LogDir, name+".log")}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			output, _ := p.Output()
			t.Logf("%s %q:\n%s", binary, args, stack.Tail(output))
		}
	})
	return p
}

// snapshot is what tests read of /status.
type snapshot struct {
	Lag               int64
	Partitions        []struct{ Partition int32 }
	ClockAheadSeconds float64 `json:"clock_ahead_seconds"`
	Oldest            struct{ Cause, Detail string }
	Dependencies      []struct {
		Name, At, Error string
		OutSince        time.Time `json:"out_since"`
	}
	Metrics struct {
		Counts      map[string]int64
		LostPackets int64 `json:"lost_packets"`
	}
}

// running is a process with a status page.
type running struct {
	*stack.Process
	t       *testing.T
	address string
}

// start launches `<binary> run` with a status page.
func start(t *testing.T, binary string, env []string) *running {
	t.Helper()
	r := prepare(t, binary, env)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// prepare is start without the start.
func prepare(t *testing.T, binary string, env []string) *running {
	t.Helper()
	port, err := world.ports.Next()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	return &running{process(t, binary, []string{"run"}, append(slices.Clone(env), "STATUS_ADDR="+address)), t, address}
}

// get returns the answer to a GET; 0 if there is none.
func (r *running) get(path string) (code int, text string) {
	response, err := http.Get("http://" + r.address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (r *running) status() (s snapshot) {
	if code, text := r.get("/status"); code == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			r.t.Fatalf("%v in %s", err, text)
		}
	}
	return s
}

// awaitReady waits until the process says that it is.
func (r *running) awaitReady() *running {
	r.t.Helper()
	await(r.t, r.Name+" is ready", func() bool {
		if !r.Running() {
			output, _ := r.Output()
			r.t.Fatalf("%s ended:\n%s", r.Name, stack.Tail(output))
		}
		code, _ := r.get("/readyz")
		return code == http.StatusOK
	})
	return r
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !stacktest.Within(patience, condition) {
		t.Fatalf("%s: not within %s", what, patience)
	}
}

// ends waits until the process ends by itself and returns how soon.
func ends(t *testing.T, p *stack.Process, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	p.Wait(ctx) //nolint:errcheck // the exit code tells
	if p.Running() {
		t.Fatalf("%s still runs after %s", p.Name, within)
	}
	return time.Since(began)
}

// lastWords is the error that the process ended with, without the command's
// name: what it printed last that is no log line.
func lastWords(t *testing.T, p *stack.Process, command string) string {
	t.Helper()
	output, err := p.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, words, found := strings.Cut("\n"+output, "\n"+command+": ")
	for { // warnings come before
		_, after, more := strings.Cut(words, "\n"+command+": ")
		if !more {
			break
		}
		words = after
	}
	if !found {
		t.Errorf("%s has said nothing", command)
	}
	return words
}
