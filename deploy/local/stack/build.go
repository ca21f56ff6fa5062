package stack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// moduleLine is how the root module's go.mod begins.
const moduleLine = "module github.com/quiesce-io/quiesce\n"

// Root returns the root directory of the repository: the nearest directory at
// or above the current one whose go.mod is the root module's.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte(moduleLine)) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find repository: no directory above %s is its root", start)
		}
	}
}

// BuildBinary builds the command in directory dir of the root module ("bridge",
// "worker") into .cache/bin and returns its path. flags go to `go build`.
func BuildBinary(ctx context.Context, root, dir string, flags ...string) (string, error) {
	bin := filepath.Join(root, ".cache", "bin")
	name := filepath.Base(dir)
	if len(flags) > 0 {
		name += "-" + digest([]byte(fmt.Sprint(flags)))
	}
	path := filepath.Join(bin, name)
	unlock, err := lock(ctx, filepath.Join(bin, name+".lock"), nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	return path, goBuild(ctx, root, path, append(slices.Clone(flags), "./"+dir)...)
}

// buildTemporal builds the embedded Temporal server, unless this version of it
// was built before, and returns its path.
func buildTemporal(ctx context.Context, root string, progress io.Writer) (string, error) {
	source := filepath.Join(root, "deploy", "local", "temporal")
	sum, err := digestSource(source)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".cache", "bin", "temporal-"+sum)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := lock(ctx, filepath.Join(root, ".cache", "bin", "temporal.lock"), func() {
		fmt.Fprintln(progress, "Another process is building the embedded Temporal server; waiting for it.")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // by whoever held the lock
	}
	fmt.Fprintln(progress, "Building the embedded Temporal server with its web UI: there is no `temporal` CLI on the PATH and\n"+
		"TEMPORAL_ADDRESS is not set. A first build takes about 7 minutes on two cores; later starts take seconds.")
	defer reportElapsed(progress, "Building the embedded Temporal server")()
	return path, goBuild(ctx, source, path, ".")
}

// reportElapsed prints every 15 s how long the work has taken, until the
// returned function is called.
func reportElapsed(progress io.Writer, what string) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	start := time.Now()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				fmt.Fprintf(progress, "%s: %s so far\n", what, time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(quit); <-stopped }
}

// goBuild builds into path. The result appears there at once and whole, also
// where an older one is being executed.
func goBuild(ctx context.Context, dir, path string, args ...string) error {
	partial := fmt.Sprintf("%s.%d.partial", path, os.Getpid())
	defer os.Remove(partial) // gone if all went well
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", partial}, args...)...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", args[len(args)-1], dir, err, Tail(string(output)))
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("install %s: %w", path, err)
	}
	return nil
}

// digestSource returns a digest of a directory's Go files, its module's
// versions and the Go version: what a build result depends on.
func digestSource(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	text.WriteString(runtime.Version())
	for _, file := range append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("digest of %s: %w", dir, err)
		}
		fmt.Fprintf(&text, "\x00%s\x00%d\x00", filepath.Base(file), len(content))
		text.Write(content)
	}
	return digest(text.Bytes()), nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// lock takes an exclusive lock on the file, which is created, and calls waiting
// once if somebody else holds it. The lock ends with the process at the latest.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
