package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestDependencyStops pauses Temporal, then Spanner, under load, each for longer
// than any single request may take. It is not parallel: all would stand still.
func TestDependencyStops(t *testing.T) {
	p := newPipeline(t)
	p.startBoth()
	p.traffic(load.Config{Accounts: 12, Rate: 4, Seed: 5})
	ctx, stop := context.WithCancel(t.Context())
	wait := p.runLoad(ctx, patience)
	for _, part := range []*stack.Process{world.Temporal.Process, world.Spanner.Process} {
		calls := len(p.upstream.Calls())
		p.await("traffic flows", func() bool { return len(p.upstream.Calls()) > calls+3 })
		p.pause(part, 4*time.Second)
	}
	calls := len(p.upstream.Calls())
	p.await("traffic flows again", func() bool { return len(p.upstream.Calls()) > calls+3 })
	stop()
	wait()
	p.drained()
	v := p.verdict()
	if parked := p.parked(); len(parked) > 0 {
		t.Errorf("parked: %v", parked)
	}
	t.Logf("%d changes, %d calls, of which %d were in vain", len(p.load.Changes()), len(v.calls), len(v.wasted))
}

// pause stops a part of the stack for d.
func (p *pipeline) pause(part *stack.Process, d time.Duration) {
	p.t.Helper()
	p.must(part.Signal(syscall.SIGSTOP))
	time.Sleep(d) // that it takes its time is the point
	p.must(part.Signal(syscall.SIGCONT))
}

// TestUnreachableAtStart: whoever cannot do without a dependency says which,
// where it looked for it, and ends. It is not parallel: on a machine that is
// busy, what is there might not answer in time either.
func TestUnreachableAtStart(t *testing.T) {
	p := newPipeline(t, "START_TIMEOUT=4s")
	const nobody = "127.0.0.1:1"
	tests := []struct{ binary, variable string }{
		{"bridge", "TEMPORAL_ADDRESS"}, {"bridge", "KAFKA_BROKERS"}, {"worker", "TEMPORAL_ADDRESS"}, {"worker", "SPANNER_EMULATOR_HOST"},
	}
	var processes []*stack.Process
	for _, test := range tests {
		process, _ := p.launch(test.binary, test.variable+"="+nobody)
		processes = append(processes, process)
	}
	for i, test := range tests {
		if code := p.exitCode(processes[i], 15*time.Second); code != 1 {
			t.Errorf("%s without %s: exit code %d, want 1", test.binary, test.variable, code)
		}
		p.lastWordsSay(processes[i], test.variable, nobody)
	}
}

// exitCode waits until the process ends by itself.
func (p *pipeline) exitCode(process *stack.Process, within time.Duration) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), within)
	defer cancel()
	process.Wait(ctx) //nolint:errcheck // the exit code tells
	if process.Running() {
		p.t.Errorf("%s still runs after %s", process.Name, within)
	}
	return process.ExitCode()
}

// lastWordsSay checks the error that the process ended with: what it printed
// last that is no log line.
func (p *pipeline) lastWordsSay(process *stack.Process, texts ...string) {
	p.t.Helper()
	output, err := process.Output()
	p.must(err)
	_, last, _ := strings.Cut("\n"+output, "\n"+filepath.Base(process.Path)+" run: ")
	for _, text := range texts {
		if !strings.Contains(last, text) {
			p.t.Errorf("%s ended with %q, which does not say %q", process.Name, last, text)
		}
	}
}

// TestWrongSchema: the worker says what the tables lack and what to run.
func TestWrongSchema(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	ctx := t.Context()
	admin, err := databaseadmin.NewDatabaseAdminClient(ctx, world.Spanner.ClientOptions()...)
	p.must(err)
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{
		Database: p.spanner.DatabaseName(), Statements: []string{"ALTER TABLE Accounts DROP COLUMN Attempt"},
	})
	p.must(err)
	p.must(operation.Wait(ctx))
	process, _ := p.launch("worker")
	if code := p.exitCode(process, patience); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	p.lastWordsSay(process, "SPANNER_DATABASE", "Accounts", "Attempt", "worker migrate")
	if output, code := p.command("worker", "migrate"); code != 0 || !strings.Contains(output, "Attempt") {
		t.Fatalf("worker migrate: exit code %d\n%s", code, output)
	}
	p.startBoth()
	p.change("alice")
	p.drained()
	p.noWaste(p.verdict())
}

// TestContradictorySettings: all faults are named at once, and nothing starts.
func TestContradictorySettings(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	for binary, settings := range map[string]map[string]string{
		"bridge": {"SETTLE_DELAY": "1s", "PIPELINE": "No Name", "EXECUTORS": "0", "PARK_AFTER": "9", "KAFKA_START": "yesterday"},
		"worker": {"UPSTREAM_RPS": "many", "PIPELINE": "No Name", "SYNC_SLOTS": "0", "UPSTREAM_NOT_FOUND": "ignore"},
	} {
		usual := p.env
		for name, value := range settings {
			p.env = append(p.env, name+"="+value)
		}
		output, code := p.command(binary, "run")
		p.env = usual
		if code != 2 {
			t.Errorf("%s: exit code %d, want 2", binary, code)
		}
		for name, value := range settings {
			want := fmt.Sprintf("%s=%s: ", name, value)
			if name == "PARK_AFTER" {
				want = "set PARK_AFTER to" // what to change, under the limit's name
			}
			if !strings.Contains(output, want) {
				t.Errorf("%s does not say %q:\n%s", binary, want, output)
			}
		}
	}
}
