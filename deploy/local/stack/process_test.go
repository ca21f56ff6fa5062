package stack

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell returns a process that runs the script.
func shell(t *testing.T, script string) *Process {
	t.Helper()
	p := &Process{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, LogFile: filepath.Join(t.TempDir(), "log", "shell.log")}
	t.Cleanup(func() { p.Kill() }) //nolint:errcheck
	return p
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, p *Process, marker string) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.WaitOutput(within(t, 10*time.Second), marker); err != nil {
		t.Fatal(err)
	}
}

func TestProcessIsKilledAndStartedAgain(t *testing.T) {
	p := shell(t, `echo "up $NAME"; exec sleep 60`)
	p.Env = []string{"NAME=first"}
	if p.Running() || p.Kill() != nil || p.PID() != 0 {
		t.Error("runs before it was started")
	}
	start(t, p, "up first")
	if err := p.Start(); err == nil {
		t.Error("started twice")
	}
	first := p.PID()
	if err := p.Kill(); err != nil || p.Running() {
		t.Errorf("kill: %v, running %t", err, p.Running())
	}
	var exit *exec.ExitError
	if err := p.Wait(within(t, time.Second)); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	p.Env = []string{"NAME=second"}
	start(t, p, "up second")
	if output, _ := p.Output(); strings.Contains(output, "first") || p.PID() == first {
		t.Errorf("second start: PID %d, output %q", p.PID(), output)
	}
	if log, _ := os.ReadFile(p.LogFile); !strings.Contains(string(log), "up first\nup second") {
		t.Errorf("log %q", log)
	}
}

func TestProcessTerminates(t *testing.T) {
	p := shell(t, `trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done`)
	start(t, p, "up")
	err := p.Terminate(within(t, 10*time.Second))
	if output, _ := p.Output(); err == nil || p.ExitCode() != 3 || !strings.Contains(output, "bye") {
		t.Errorf("terminate: %v, exit code %d, output %q", err, p.ExitCode(), output)
	}
	if err := p.Terminate(t.Context()); err != nil {
		t.Errorf("terminating what has ended: %v", err)
	}
}

func TestProcessThatIgnoresTerminateIsKilled(t *testing.T) {
	p := shell(t, `trap '' TERM; echo up; while :; do sleep 0.05; done`)
	start(t, p, "up")
	if err := p.Terminate(within(t, 200*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("terminate: %v", err)
	}
	if p.Running() {
		t.Error("still running")
	}
}

func TestWaitOutputFailsWhenTheProcessEnds(t *testing.T) {
	p := shell(t, `echo trouble; exit 7`)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := p.WaitOutput(within(t, 10*time.Second), "ready")
	if err == nil || !strings.Contains(err.Error(), "trouble") || !strings.Contains(err.Error(), "7") {
		t.Errorf("error %v", err)
	}
}

func TestStartReportsAMissingProgram(t *testing.T) {
	p := &Process{Name: "nothing", Path: "/does/not/exist", LogFile: filepath.Join(t.TempDir(), "log")}
	if err := p.Start(); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("error %v", err)
	}
	if p.Running() {
		t.Error("running")
	}
}

// TestChildDiesWithItsParent kills a test process that has started a child and
// waits for the child to go.
func TestChildDiesWithItsParent(t *testing.T) {
	const marker = "QUIESCE_STACK_TEST_PARENT"
	if os.Getenv(marker) != "" {
		p := &Process{Name: "child", Path: "/bin/sleep", Args: []string{"60"}, LogFile: os.Getenv(marker)}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("child " + strconv.Itoa(p.PID()) + "\n")
		p.Wait(context.Background()) //nolint:errcheck
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills children with their parent")
	}
	parent := &Process{
		Name: "parent", Path: os.Args[0], Args: []string{"-test.run=^TestChildDiesWithItsParent$"},
		Env: []string{marker + "=" + filepath.Join(t.TempDir(), "child.log")}, LogFile: filepath.Join(t.TempDir(), "parent.log"),
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := parent.WaitOutput(within(t, 20*time.Second), "child ")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 10*time.Second)
	for gone := false; !gone; {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		gone = err != nil || strings.Contains(string(state), ") Z ") // waits to be reaped
		if ctx.Err() != nil {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck
			t.Fatal("the child survives its parent")
		}
	}
}
