package startup

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// parallel is how many tests run at a time, unless -parallel says otherwise:
// they wait more than they work, whatever the number of cores.
const parallel = "16"

// patience is how long a condition may take that holds sooner or later.
const patience = 60 * time.Second

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	binaries map[string]string // paths
	numbers  atomic.Int32
}

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", parallel) //nolint:errcheck // the flag exists
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	for _, name := range []string{"TEMPORAL_ADDRESS", "KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"} {
		os.Unsetenv(name) //nolint:errcheck
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // the server may have to be built first
	defer cancel()
	s, err := stack.Start(ctx, stack.Options{Progress: os.Stderr, Partitions: 2, Upstream: upstream.Config{Seed: 1}})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if s.Spanner.InMemory {
		fmt.Fprintln(os.Stderr, "SKIPPED: tests of start-up need the Spanner emulator: gcloud components install cloud-spanner-emulator")
		return 0, nil
	}
	world.Stack, world.binaries = s, map[string]string{}
	for _, binary := range []string{"bridge", "worker"} {
		if world.binaries[binary], err = stack.BuildBinary(ctx, s.Root, binary); err != nil {
			return 1, err
		}
	}
	if err := s.Pipeline("migrated").Migrate(ctx); err != nil {
		return 1, err
	}
	code = m.Run()
	select {
	case err = <-s.Failed():
	default:
	}
	return code, err
}

// freePort returns a port that nobody listens on and no other test is given. It
// lies below those that the kernel hands out by itself.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 21000 + int(world.numbers.Add(1))
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// unused is an address of this machine that nobody listens on: port 1 needs
// more rights than tests have, and is nobody's.
const unused = "127.0.0.1:1"

// silent returns an address that accepts connections and never answers, and a
// channel that is closed once somebody has connected.
func silent(t *testing.T) (address string, connected <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			if conns = append(conns, conn); len(conns) == 1 {
				close(first)
			}
		}
		for _, conn := range conns {
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr().String(), first
}
