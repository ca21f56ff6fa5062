// Package stacktest gives the tests of a package an embedded stack of their own.
package stacktest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// startTimeout bounds start and preparation: Temporal's server may have to be
// built first.
const startTimeout = 15 * time.Minute

// Main starts a stack, has prepare make of it what the tests share, runs them,
// calls release, stops the stack and ends the process. A part that ends by itself
// meanwhile fails the run. Without the Spanner emulator nothing is run, and stderr
// says so, unless the stack is to be without Spanner.
//
// The stack is this process's own, parts of it may be paused: the variables that
// name parts which run already are not followed.
func Main(m *testing.M, options stack.Options, prepare func(ctx context.Context, s *stack.Stack) (release func(), err error)) {
	flag.Parse()
	code, err := run(m, options, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, options stack.Options, prepare func(context.Context, *stack.Stack) (func(), error)) (code int, err error) {
	for _, name := range []string{"TEMPORAL_ADDRESS", "KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"} {
		os.Unsetenv(name) //nolint:errcheck // the names are valid
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	options.Progress = os.Stderr
	s, err := stack.Start(ctx, options)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if s.Spanner.InMemory {
		fmt.Fprintln(os.Stderr, "SKIPPED: these tests need the Spanner emulator: gcloud components install cloud-spanner-emulator")
		return 0, nil
	}
	release, err := prepare(ctx, s)
	if err != nil {
		return 1, fmt.Errorf("prepare the tests: %w", err)
	}
	defer release()
	code = m.Run()
	select {
	case err = <-s.Failed():
	default:
	}
	return code, err
}

// Parallel sets how many tests of the package run at a time, unless -parallel
// does: tests of processes wait more than they work, whatever the number of
// cores. To be called before [Main].
func Parallel(tests string) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", tests) //nolint:errcheck // the flag exists
	}
}

// Dial returns a client of the stack's Temporal that logs nothing.
func Dial(ctx context.Context, s *stack.Stack) (client.Client, error) {
	c, err := client.DialContext(ctx, client.Options{
		HostPort: s.Temporal.Address, Namespace: s.Temporal.Namespace,
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, fmt.Errorf("temporal client: %w", err)
	}
	return c, nil
}

// Binaries builds bridge and worker and returns their paths by name.
func Binaries(ctx context.Context, s *stack.Stack) (map[string]string, error) {
	paths := map[string]string{}
	for _, name := range []string{"bridge", "worker"} {
		path, err := stack.BuildBinary(ctx, s.Root, name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
	}
	return paths, nil
}

// Ports hands out ports that nobody listens on, each once, for processes that
// are to listen there later, and again after a restart. They lie below those
// that the kernel gives to whoever asks for any. Packages whose tests run at the
// same time need ports of their own.
type Ports struct {
	After int // the first is above it

	given atomic.Int32
}

// Next returns the next port.
func (p *Ports) Next() (int, error) {
	for range 1000 {
		port := p.After + int(p.given.Add(1))
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, errors.New("no port is free")
}

// Within waits until the condition holds, and reports whether it did before the
// time was up.
func Within(patience time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
