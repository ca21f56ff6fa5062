// Package emulator finds, starts and fills Google's Spanner emulator, for tests
// and the local stack. Production code does not import it.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// HostVariable is the variable by which Google's clients find an emulator.
const HostVariable = "SPANNER_EMULATOR_HOST"

// ErrNotFound says that there is no emulator on this machine.
var ErrNotFound = errors.New("no Spanner emulator found: set " + HostVariable + " or run `gcloud components install cloud-spanner-emulator`")

// Find returns the path of emulator_main, from the PATH or a Google Cloud SDK.
func Find(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("emulator_main"); err == nil {
		return path, nil
	}
	roots := []string{os.Getenv("CLOUDSDK_ROOT"), os.Getenv("CLOUDSDK_ROOT_DIR"), "/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", "/usr/local/google-cloud-sdk", "/snap/google-cloud-cli/current"}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, "google-cloud-sdk"))
	}
	for _, root := range roots {
		if path, ok := in(root); ok {
			return path, nil
		}
	}
	if gcloud, err := exec.LookPath("gcloud"); err == nil {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, gcloud, "info", "--format=value(installation.sdk_root)").Output()
		if path, ok := in(strings.TrimSpace(string(out))); err == nil && ok {
			return path, nil
		}
	}
	return "", ErrNotFound
}

func in(root string) (string, bool) {
	if root == "" {
		return "", false
	}
	path := filepath.Join(root, "bin", "cloud_spanner_emulator", "emulator_main")
	info, err := os.Stat(path)
	return path, err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// Emulator is a running emulator process.
type Emulator struct {
	Host string // host:port, the value for [HostVariable]
	cmd  *exec.Cmd
	done chan error // closed with the process's end; capacity 1
}

// Start starts the emulator at path on a free port of the loopback and waits
// until it answers. It runs until [Emulator.Stop].
func Start(ctx context.Context, path string) (*Emulator, error) {
	// The emulator takes no port 0, so a port is picked and may be lost to
	// somebody else in between: then it exits, and another is picked.
	var err error
	for range 3 {
		var e *Emulator
		if e, err = start(ctx, path); err == nil {
			return e, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("start Spanner emulator %s: %w", path, err)
}

func start(ctx context.Context, path string) (*Emulator, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	e := &Emulator{Host: host, cmd: exec.Command(path, "--host_port="+host), done: make(chan error, 1)}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { e.done <- e.cmd.Wait(); close(e.done) }()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		if conn, err := net.Dial("tcp", host); err == nil {
			return e, conn.Close()
		}
		select {
		case err := <-e.done:
			return nil, fmt.Errorf("it exited: %w", err)
		case <-ctx.Done():
			e.Stop()
			return nil, fmt.Errorf("it does not listen on %s: %w", host, ctx.Err())
		case <-time.After(20 * time.Millisecond): // between two looks at the port
		}
	}
}

// Stop kills the process and waits for its end. What it held is lost.
func (e *Emulator) Stop() {
	_ = e.cmd.Process.Kill()
	<-e.done
}

// CreateDatabase creates the instance and the empty database of a name like
// projects/P/instances/I/databases/D, at the emulator that [HostVariable] names.
// What exists is left as it is.
func CreateDatabase(ctx context.Context, name string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 6 {
		return fmt.Errorf("create database %s: want projects/P/instances/I/databases/D", name)
	}
	if os.Getenv(HostVariable) == "" {
		return fmt.Errorf("create database %s: %s is not set", name, HostVariable)
	}
	if err := createInstance(ctx, parts[1], parts[3]); err != nil {
		return fmt.Errorf("create instance of %s: %w", name, err)
	}
	admin, err := database.NewDatabaseAdminClient(ctx)
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer admin.Close()
	operation, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: strings.Join(parts[:4], "/"), CreateStatement: "CREATE DATABASE `" + parts[5] + "`",
	})
	if err == nil {
		_, err = operation.Wait(ctx)
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func createInstance(ctx context.Context, project, id string) error {
	admin, err := instance.NewInstanceAdminClient(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	operation, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: "projects/" + project, InstanceId: id,
		Instance: &instancepb.Instance{Config: "projects/" + project + "/instanceConfigs/emulator-config", DisplayName: id, NodeCount: 1},
	})
	if err == nil {
		_, err = operation.Wait(ctx)
	}
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
