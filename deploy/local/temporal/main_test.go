package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/dynamicconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// start runs the program with args until the test ends or stop is called, and
// returns the addresses of its ready line.
func start(t *testing.T, args ...string) (frontend, ui string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, args, in, os.Stderr)
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		cancel()
		t.Fatalf("no ready line: %v; run: %v", err, <-ended)
	}
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != "ready" {
		t.Fatalf("ready line %q", line)
	}
	stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("stopped with %v", err)
			}
			ended <- nil
		case <-time.After(30 * time.Second):
			t.Error("does not stop")
		}
	}
	t.Cleanup(stop)
	return strings.TrimPrefix(fields[1], "frontend="), strings.TrimPrefix(fields[2], "ui="), stop
}

func frontendClient(t *testing.T, address string) workflowservice.WorkflowServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return workflowservice.NewWorkflowServiceClient(conn)
}

func TestServesNamespaceAndUI(t *testing.T) {
	frontend, ui, stop := start(t, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--namespace", "orders",
		"--dynamic-config", "limit.maxIDLength=40")
	client := frontendClient(t, frontend)
	info, err := client.GetSystemInfo(t.Context(), &workflowservice.GetSystemInfoRequest{})
	if err != nil || info.ServerVersion == "" {
		t.Fatalf("system info %v, %v", info, err)
	}
	_, err = client.DescribeWorkflowExecution(t.Context(), &workflowservice.DescribeWorkflowExecutionRequest{Namespace: "orders"})
	if err == nil {
		t.Error("describe without an execution was accepted")
	}
	// The lowered limit is in force, so dynamic config reaches the server.
	_, err = client.StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: "orders", WorkflowId: strings.Repeat("w", 41), RequestId: "r",
	})
	if err == nil || !strings.Contains(err.Error(), "length") {
		t.Errorf("a workflow ID above the lowered limit: %v", err)
	}
	response, err := http.Get(ui + "/api/v1/namespaces/orders")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"orders"`) {
		t.Errorf("UI's API: %s %.200s", response.Status, body)
	}
	page, err := http.Get(ui + "/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(page.Body)
	page.Body.Close()
	if !strings.Contains(string(body), "<html") {
		t.Errorf("UI's page: %s %.200s", page.Status, body)
	}
	stop()
	if conn, err := net.Dial("tcp", frontend); err == nil {
		conn.Close()
		t.Error("the frontend still accepts connections")
	}
}

func TestDatabaseFileKeepsNamespaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "temporal.db")
	_, _, stop := start(t, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--namespace", "first", "--db", file)
	stop()
	frontend, _, _ := start(t, "--listen", "127.0.0.1:0", "--ui", "127.0.0.1:0", "--namespace", "second", "--db", file)
	client := frontendClient(t, frontend)
	for _, namespace := range []string{"first", "second"} {
		_, err := client.DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		if err != nil {
			t.Errorf("namespace %s: %v", namespace, err)
		}
	}
}

func TestParseDynamic(t *testing.T) {
	for text, want := range map[string]any{
		"frontend.rps=10": 10, "a.b=true": true, "a.b=1.5": 1.5, "a.b=10s": "10s", "a.b=x=y": "x=y", "a.b=": "",
	} {
		key, value, err := parseDynamic(text)
		name, _, _ := strings.Cut(text, "=")
		if err != nil || value != want || key != dynamicconfig.MakeKey(name) {
			t.Errorf("%s: %v=%v (%T), %v", text, key, value, value, err)
		}
	}
	for _, text := range []string{"", "a", "=1"} {
		if _, _, err := parseDynamic(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--listen", "localhost:1"}, {"--ui", "8233"}, {"--namespace", ""}, {"extra"}, {"--dynamic-config", "x"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
