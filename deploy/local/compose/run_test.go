package compose

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// runner runs services of the file as processes. Names of containers in their
// commands and environments become addresses on this machine.
type runner struct {
	t       *testing.T
	project *types.Project
	paths   map[string]string
	names   *strings.Replacer
}

func (r *runner) start(service string) *stack.Process {
	r.t.Helper()
	s := r.project.Services[service]
	p := &stack.Process{Name: service, Path: r.paths[s.Command[0]], LogFile: filepath.Join(r.t.TempDir(), service+".log")}
	for _, arg := range s.Command[1:] {
		p.Args = append(p.Args, r.names.Replace(arg))
	}
	for _, entry := range environment(s) {
		p.Env = append(p.Env, r.names.Replace(entry))
	}
	require.NoError(r.t, p.Start())
	r.t.Cleanup(func() {
		if r.t.Failed() {
			output, _ := p.Output()
			r.t.Logf("%s:\n%s", service, stack.Tail(output))
		}
		require.NoError(r.t, p.Kill())
	})
	return p
}

// complete starts a service and waits until it ends well.
func (r *runner) complete(service string) {
	r.t.Helper()
	require.NoError(r.t, r.start(service).Wait(r.t.Context()))
}

// healthy waits until the service's own health check passes.
func (r *runner) healthy(service string) {
	r.t.Helper()
	s := r.project.Services[service]
	require.Eventually(r.t, func() bool {
		var args []string
		for _, arg := range s.HealthCheck.Test[2:] {
			args = append(args, r.names.Replace(arg))
		}
		cmd := exec.CommandContext(r.t.Context(), r.paths[s.HealthCheck.Test[1]], args...)
		cmd.Env = os.Environ()
		for _, entry := range environment(s) {
			cmd.Env = append(cmd.Env, r.names.Replace(entry))
		}
		return cmd.Run() == nil
	}, 60*time.Second, 100*time.Millisecond, service)
}

// TestOurServicesWorkTogether runs what is ours of the file, in its order.
func TestOurServicesWorkTogether(t *testing.T) {
	s, err := stack.Start(t.Context(), stack.Options{Without: []stack.Part{stack.PartUpstream}, Topic: "another", DeadLetterTopic: "another-dead-letters", Database: "another"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	if s.Spanner.InMemory {
		t.Skip("the services need the Spanner emulator: gcloud components install cloud-spanner-emulator")
	}

	ports := map[string]string{}
	for _, port := range []string{"8081", "8082", "8090"} {
		free, err := stack.FreePort()
		require.NoError(t, err)
		ports[port] = strconv.Itoa(free)
	}
	r := &runner{t: t, project: load(t), paths: binaries(t), names: strings.NewReplacer(
		"kafka:19092", strings.Join(s.Kafka.Brokers, ","),
		"spanner:9010", s.Spanner.EmulatorHost,
		"temporal:7233", s.Temporal.Address,
		"simulator:8090", "127.0.0.1:"+ports["8090"],
		":8081", ":"+ports["8081"], ":8082", ":"+ports["8082"], ":8090", ":"+ports["8090"],
	)}
	r.complete("prepare")
	r.complete("prepare") // again: `up` runs it each time
	r.complete("migrate")
	r.start("simulator")
	r.healthy("simulator")
	r.start("worker")
	r.start("bridge")
	r.healthy("worker")
	r.healthy("bridge")

	require.Eventually(t, func() bool {
		response, err := http.Get("http://127.0.0.1:" + ports["8082"] + "/status")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var status struct {
			Metrics struct{ Counts map[string]int64 }
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&status))
		counts := status.Metrics.Counts
		return counts["sync.outcomes{written}"] > 10 && counts["sync.changes"] > counts["sync.calls"]
	}, 60*time.Second, 200*time.Millisecond, "changes are carried over, and calls are saved")
}
