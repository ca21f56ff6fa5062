package stack

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instanceadmin "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/deploy/local/spannermemory"
)

const (
	project  = "projects/quiesce"
	instance = project + "/instances/local"
)

// Spanner is the Spanner in use.
type Spanner struct {
	// EmulatorHost is its host:port.
	EmulatorHost string
	// Database is the full name of the database that was created.
	Database string
	// Kind says in words what it is.
	Kind string
	// InMemory is set where it is only spannertest, which has no isolation, no
	// rollback, and one database whatever its name.
	InMemory bool

	// Process is the child process, for pausing it; nil where it is not ours.
	Process *Process
}

// startSpanner uses the emulator that the environment names, or starts the one
// that is installed, or falls back to spannertest; and creates the database.
func (s *Stack) startSpanner(ctx context.Context, opts Options) error {
	s.Spanner = Spanner{EmulatorHost: os.Getenv("SPANNER_EMULATOR_HOST"), Kind: "SPANNER_EMULATOR_HOST"}
	if s.Spanner.EmulatorHost == "" {
		port, err := choosePort(opts.SpannerPort)
		if err != nil {
			return fmt.Errorf("port for Spanner: %w", err)
		}
		s.Spanner.EmulatorHost = loopback(port)
		emulator := findEmulator(ctx)
		if emulator == "" {
			return s.startSpannerInMemory(opts)
		}
		s.Spanner.Kind = "emulator " + emulator
		s.Spanner.Process = &Process{
			Name: "spanner emulator", Path: emulator, Args: []string{"--host_port=" + s.Spanner.EmulatorHost},
			LogFile: filepath.Join(s.LogDir, "spanner.log"),
		}
		if err := s.startChild(s.Spanner.Process); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := s.await(ctx, s.Spanner.Process, "Spanner emulator at "+s.Spanner.EmulatorHost, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Spanner.EmulatorHost)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return err
	}
	if err := s.createInstance(ctx); err != nil {
		return fmt.Errorf("create instance %s at %s: %w", instance, s.Spanner.EmulatorHost, err)
	}
	s.Spanner.Database, err = s.CreateDatabase(ctx, opts.Database)
	return err
}

func (s *Stack) startSpannerInMemory(opts Options) error {
	server, err := spannermemory.Start(s.Spanner.EmulatorHost)
	if err != nil {
		return fmt.Errorf("start in-memory Spanner: %w", err)
	}
	s.onStop(func() error { server.Close(); return nil })
	s.Spanner.Kind = "in memory (spannertest): no emulator was found"
	s.Spanner.InMemory = true
	s.Spanner.Database = instance + "/databases/" + opts.Database
	fmt.Fprintln(opts.Progress, "Spanner is the client library's in-memory one: it has no isolation and no rollback, so this run\n"+
		"proves nothing about transactions. For the real emulator: gcloud components install cloud-spanner-emulator")
	return nil
}

// findEmulator returns the path of emulator_main, or nothing.
func findEmulator(ctx context.Context) string {
	if path, err := exec.LookPath("emulator_main"); err == nil {
		return path
	}
	roots := []string{"/usr/lib/google-cloud-sdk", "/opt/google-cloud-sdk", filepath.Join(os.Getenv("HOME"), "google-cloud-sdk")}
	for _, root := range roots {
		if path := emulatorBelow(root); path != "" {
			return path
		}
	}
	// Last, because gcloud takes a second or more to answer.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, "gcloud", "info", "--format=value(installation.sdk_root)").Output()
	if err != nil {
		return ""
	}
	return emulatorBelow(strings.TrimSpace(string(output)))
}

func emulatorBelow(root string) string {
	path := filepath.Join(root, "bin", "cloud_spanner_emulator", "emulator_main")
	if info, err := os.Stat(path); root == "" || err != nil || info.Mode()&0o111 == 0 {
		return ""
	}
	return path
}

// ClientOptions reach the emulator whatever this process's environment says.
func (sp Spanner) ClientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + sp.EmulatorHost),
		option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// Client returns a client of the database that the caller closes.
func (sp Spanner) Client(ctx context.Context, database string) (*spanner.Client, error) {
	c, err := spanner.NewClientWithConfig(ctx, database, spanner.ClientConfig{DisableNativeMetrics: true}, sp.ClientOptions()...)
	if err != nil {
		return nil, fmt.Errorf("spanner client of %s at %s: %w", database, sp.EmulatorHost, err)
	}
	return c, nil
}

func (s *Stack) createInstance(ctx context.Context) error {
	admin, err := instanceadmin.NewInstanceAdminClient(ctx, s.Spanner.ClientOptions()...)
	if err != nil {
		return err
	}
	defer admin.Close()
	operation, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: project, InstanceId: "local",
		Instance: &instancepb.Instance{Config: project + "/instanceConfigs/emulator-config", DisplayName: "local", NodeCount: 1},
	})
	if err == nil {
		_, err = operation.Wait(ctx)
	}
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

// CreateDatabase creates an empty database and returns its full name. One that
// exists is left as it is. The in-memory Spanner knows one database only,
// whatever its name.
func (s *Stack) CreateDatabase(ctx context.Context, id string) (string, error) {
	name := instance + "/databases/" + id
	if s.Spanner.InMemory {
		return name, nil
	}
	admin, err := databaseadmin.NewDatabaseAdminClient(ctx, s.Spanner.ClientOptions()...)
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer admin.Close()
	operation, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: instance, CreateStatement: "CREATE DATABASE `" + id + "`",
	})
	if err == nil {
		_, err = operation.Wait(ctx)
	}
	if err != nil && status.Code(err) != codes.AlreadyExists {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return name, nil
}
