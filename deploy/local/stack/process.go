package stack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child process that can be killed and started again. Its output
// is appended to LogFile.
type Process struct {
	// Name is what errors call it.
	Name string
	// Path and Args are the program and its arguments.
	Path string
	Args []string
	// Env is added to this process's own environment; later entries win.
	Env []string
	// Dir is where it runs; empty: here.
	Dir string
	// StatusURL is its status page; empty: none. [Pipeline.Run] sets it.
	StatusURL string
	// LogFile takes stdout and stderr. It is required.
	LogFile string

	mu      sync.Mutex
	current *execution // the latest, also after it ended; nil before the first
}

// execution is one start of a process.
type execution struct {
	cmd       *exec.Cmd
	logOffset int64         // where its output begins
	done      chan struct{} // closed once it ended; err is set then
	err       error
}

// Start starts the process. It is an error while it runs.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && !p.current.ended() {
		return fmt.Errorf("%s: is running already", p.Name)
	}
	if err := os.MkdirAll(filepath.Dir(p.LogFile), 0o755); err != nil {
		return fmt.Errorf("%s: log directory: %w", p.Name, err)
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: log: %w", p.Name, err)
	}
	info, err := log.Stat()
	if err != nil {
		log.Close()
		return fmt.Errorf("%s: log: %w", p.Name, err)
	}
	e := &execution{logOffset: info.Size(), done: make(chan struct{})}
	e.cmd = exec.Command(p.Path, p.Args...)
	e.cmd.Env = append(os.Environ(), p.Env...)
	e.cmd.Dir = p.Dir
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = childAttributes()

	started := make(chan error)
	go func() {
		// Linux kills the child when the thread ends that started it, not the
		// process. So this goroutine keeps its thread until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := e.cmd.Start()
		started <- err
		if err == nil {
			e.err = e.cmd.Wait()
			close(e.done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.current = e
	return nil
}

func (e *execution) ended() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (p *Process) latest() *execution {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Running reports whether the process was started and has not ended.
func (p *Process) Running() bool {
	e := p.latest()
	return e != nil && !e.ended()
}

// Done is closed once the latest start has ended. It is nil before the first.
func (p *Process) Done() <-chan struct{} {
	if e := p.latest(); e != nil {
		return e.done
	}
	return nil
}

// PID returns the process ID of the latest start, 0 before the first.
func (p *Process) PID() int {
	if e := p.latest(); e != nil {
		return e.cmd.Process.Pid
	}
	return 0
}

// Wait waits for the process to end by itself and returns how: nil for exit
// code 0, an error that wraps [*exec.ExitError] for another.
func (p *Process) Wait(ctx context.Context) error {
	e := p.latest()
	if e == nil {
		return fmt.Errorf("%s: was never started", p.Name)
	}
	select {
	case <-e.done:
		if e.err != nil {
			return fmt.Errorf("%s: %w", p.Name, e.err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: still running: %w", p.Name, context.Cause(ctx))
	}
}

// ExitCode returns the exit code of the latest start, -1 while it runs and
// where a signal ended it.
func (p *Process) ExitCode() int {
	if e := p.latest(); e != nil && e.ended() {
		return e.cmd.ProcessState.ExitCode()
	}
	return -1
}

// Signal sends sig to the process; none is sent to one that has ended.
func (p *Process) Signal(sig os.Signal) error {
	e := p.latest()
	if e == nil {
		return fmt.Errorf("%s: was never started", p.Name)
	}
	if err := e.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it is gone. Killing one
// that has ended, or was never started, does nothing.
func (p *Process) Kill() error {
	e := p.latest()
	if e == nil || e.ended() {
		return nil
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-e.done
	return nil
}

// Terminate asks the process to end with SIGTERM, waits for it and returns as
// [Process.Wait] does. One that has not ended when ctx does is killed, which is
// an error.
func (p *Process) Terminate(ctx context.Context) error {
	e := p.latest()
	if e == nil || e.ended() {
		return nil
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-e.done:
		return p.Wait(ctx)
	case <-ctx.Done():
		err := p.Kill()
		return errors.Join(fmt.Errorf("%s: did not end on SIGTERM in time: %w", p.Name, context.Cause(ctx)), err)
	}
}

// Output returns what the latest start has written so far.
func (p *Process) Output() (string, error) {
	e := p.latest()
	if e == nil {
		return "", nil
	}
	log, err := os.Open(p.LogFile)
	if err != nil {
		return "", fmt.Errorf("%s: log: %w", p.Name, err)
	}
	defer log.Close()
	if _, err := log.Seek(e.logOffset, io.SeekStart); err != nil {
		return "", fmt.Errorf("%s: log: %w", p.Name, err)
	}
	text, err := io.ReadAll(log)
	return string(text), err
}

// WaitOutput waits until the latest start has written a line that contains
// text, and returns the line. It fails early when the process ends without.
func (p *Process) WaitOutput(ctx context.Context, text string) (string, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		running := p.Running() // before reading: its last words count
		output, err := p.Output()
		if err != nil {
			return "", err
		}
		lines := bufio.NewScanner(strings.NewReader(output))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return lines.Text(), nil
			}
		}
		if !running {
			return "", fmt.Errorf("%s ended (exit code %d) without %q; its output:\n%s", p.Name, p.ExitCode(), text, Tail(output))
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: no %q: %w; its output:\n%s", p.Name, text, context.Cause(ctx), Tail(output))
		case <-tick.C:
		}
	}
}

// Tail returns the last lines of output, enough to see what went wrong.
func Tail(output string) string {
	const lines = 20
	text := bytes.TrimRight([]byte(output), "\n")
	for i, n := len(text)-1, 0; i >= 0; i-- {
		if text[i] == '\n' {
			if n++; n == lines {
				return string(text[i+1:])
			}
		}
	}
	return string(text)
}
