package startup

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// patience is how long a condition may take that holds sooner or later.
const patience = 60 * time.Second

// world is what all tests share. It is set by TestMain and only read after.
var world struct {
	*stack.Stack
	binaries map[string]string // paths
	numbers  atomic.Int32
	ports    stacktest.Ports
}

func TestMain(m *testing.M) {
	stacktest.Parallel("16")
	world.ports.After = 21000
	stacktest.Main(m, stack.Options{Partitions: 2, Upstream: upstream.Config{Seed: 1}}, func(ctx context.Context, s *stack.Stack) (func(), error) {
		binaries, err := stacktest.Binaries(ctx, s)
		if err != nil {
			return nil, err
		}
		world.Stack, world.binaries = s, binaries
		return func() {}, s.Pipeline("migrated").Migrate(ctx)
	})
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
