package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// TestWorkerOfOnesOwn runs the worker that docs/extending.md shows in place of
// ours: the bridge does not notice.
func TestWorkerOfOnesOwn(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	binary, err := stack.BuildBinary(t.Context(), world.Root, filepath.Join("docs", "extending"))
	p.must(err)
	port, err := world.ports.Next()
	p.must(err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	own := &stack.Process{
		Name: "own worker of " + p.name, Path: binary, Env: append(p.env, "STATUS_ADDR="+address),
		LogFile: filepath.Join(world.LogDir, p.name+"-own-worker.log"),
	}
	p.processes = append(p.processes, own)
	p.must(own.Start())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p.must(world.AwaitHTTP(ctx, own, "http://"+address+"/readyz"))
	p.start("bridge")
	p.change("alice", "bob", "alice")
	p.drained()
	if calls := p.upstream.Calls(); len(calls) > 0 {
		t.Errorf("our own upstream was called: %v", calls)
	}
}
