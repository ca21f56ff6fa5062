package startup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// fullDisk mounts a file system that takes one more file and no byte.
func fullDisk(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=5"); errors.Is(err, syscall.EPERM) {
		t.Skip("mounting a small disk is not permitted here")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(bytes.Repeat([]byte("x"), 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return dir
}

// TestStackOnFullDisk: what cannot be started says so and names the file; what
// runs goes on without its log.
func TestStackOnFullDisk(t *testing.T) {
	t.Parallel()
	full := fullDisk(t)
	t.Run("started", func(t *testing.T) {
		s, err := stack.Start(t.Context(), stack.Options{LogDir: filepath.Join(full, "a", "b", "c", "d"), Without: []stack.Part{stack.PartSpanner, stack.PartUpstream}})
		if err == nil {
			t.Error("it started")
			s.Stop() //nolint:errcheck
		} else if !strings.Contains(err.Error(), full) || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("running", func(t *testing.T) {
		dir := fullDisk(t)
		brokers, _ := cluster(t)
		env := append(usual(), onCluster(brokers)...)
		var both []*running
		for _, binary := range []string{"worker", "bridge"} {
			r := prepare(t, binary, env)
			r.LogFile = filepath.Join(dir, binary)
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			both = append(both, r.awaitReady())
		}
		produce(t, brokers, "full")
		await(t, "the change is committed", func() bool {
			s := both[1].status()
			return s.Lag == 0 && s.Metrics.Counts["bridge.records"] == 1
		})
		for _, r := range both {
			if output, _ := r.Output(); output != "" {
				t.Errorf("%s: there was room for %q", r.Name, output)
			}
			if err := r.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if ends(t, r.Process, patience); r.ExitCode() != 0 {
				t.Errorf("%s: exit code %d", r.Name, r.ExitCode())
			}
		}
	})
}
