package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Temporal is the Temporal server in use.
type Temporal struct {
	// Address is the frontend's host:port.
	Address string
	// Namespace exists.
	Namespace string
	// UI is the web UI's URL; empty where it is not known.
	UI string
	// Kind says in words which server it is.
	Kind string

	// Process is the child process, for pausing it; nil where it is not ours.
	Process *Process
}

// startTemporal returns the server that the environment names, after checking
// that it answers, or starts one.
func (s *Stack) startTemporal(ctx context.Context, opts Options) error {
	if address := os.Getenv("TEMPORAL_ADDRESS"); address != "" {
		return s.useTemporal(ctx, address)
	}
	port, err := choosePort(opts.TemporalPort)
	if err != nil {
		return fmt.Errorf("port for Temporal: %w", err)
	}
	uiPort, err := choosePort(opts.UIPort)
	if err != nil {
		return fmt.Errorf("port for Temporal's UI: %w", err)
	}
	t := Temporal{
		Address:   loopback(port),
		Namespace: namespace,
		UI:        "http://" + loopback(uiPort),
	}
	t.Process = &Process{Name: "temporal", LogFile: filepath.Join(s.LogDir, "temporal.log")}
	if cli, err := exec.LookPath("temporal"); err == nil {
		t.Kind = "development server of the temporal CLI"
		t.Process.Path = cli
		t.Process.Args = []string{"server", "start-dev", "--ip", "127.0.0.1", "--port", strconv.Itoa(port),
			"--ui-port", strconv.Itoa(uiPort), "--namespace", t.Namespace, "--log-level", "error"}
		for _, setting := range opts.TemporalDynamicConfig {
			t.Process.Args = append(t.Process.Args, "--dynamic-config-value", jsonSetting(setting))
		}
	} else {
		t.Kind = "embedded server"
		if t.Process.Path, err = buildTemporal(ctx, s.Root, opts.Progress); err != nil {
			return fmt.Errorf("embedded Temporal server: %w", err)
		}
		t.Process.Args = []string{"--listen", t.Address, "--ui", loopback(uiPort), "--namespace", t.Namespace}
		for _, setting := range opts.TemporalDynamicConfig {
			t.Process.Args = append(t.Process.Args, "--dynamic-config", setting)
		}
	}
	if err := s.startChild(t.Process); err != nil {
		return err
	}
	s.Temporal = t
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(t.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("temporal at %s: %w", t.Address, err)
	}
	defer conn.Close()
	frontend := workflowservice.NewWorkflowServiceClient(conn)
	err = s.await(ctx, t.Process, "namespace "+t.Namespace+" of Temporal at "+t.Address, func(ctx context.Context) error {
		_, err := frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.Namespace})
		return err
	})
	if err != nil {
		return err
	}
	return s.AwaitHTTP(ctx, t.Process, t.UI) // it starts after the server
}

// useTemporal checks the server at TEMPORAL_ADDRESS with whatever else the
// standard TEMPORAL_* variables say about how to reach it.
func (s *Stack) useTemporal(ctx context.Context, address string) error {
	opts, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return fmt.Errorf("TEMPORAL_* variables: %w", err)
	}
	opts.Logger = discardLogger{}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return fmt.Errorf("TEMPORAL_ADDRESS=%s: %w", address, err)
	}
	defer c.Close()
	s.Temporal = Temporal{Address: address, Namespace: opts.Namespace, Kind: "TEMPORAL_ADDRESS"}
	if s.Temporal.Namespace == "" {
		s.Temporal.Namespace = client.DefaultNamespace
	}
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.Temporal.Namespace})
	if err != nil {
		return fmt.Errorf("namespace %s at TEMPORAL_ADDRESS=%s: %w", s.Temporal.Namespace, address, err)
	}
	return nil
}

// jsonSetting turns KEY=VALUE into what the CLI wants, KEY=JSON: a value that
// is neither a number nor a bool is quoted.
func jsonSetting(setting string) string {
	key, value, _ := strings.Cut(setting, "=")
	if _, err := strconv.ParseFloat(value, 64); err == nil || value == "true" || value == "false" {
		return setting
	}
	return key + "=" + strconv.Quote(value)
}

// discardLogger keeps the SDK from logging on the terminal.
type discardLogger struct{}

func (discardLogger) Debug(string, ...any) {}
func (discardLogger) Info(string, ...any)  {}
func (discardLogger) Warn(string, ...any)  {}
func (discardLogger) Error(string, ...any) {}
