package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// startTimeout bounds the time until the namespace answers. The server needs
// about two seconds on an idle machine.
const startTimeout = 60 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}

// run starts server and UI, says so on stdout and stops both when ctx ends. The
// UI stops first: it is a client of the server.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	opts, err := parse(args, stderr)
	if err != nil {
		return err
	}
	server, err := newServer(opts)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start server on %s: %w", opts.frontend, err)
	}
	defer server.Stop()

	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := awaitNamespace(startCtx, opts.frontend.String(), opts.namespace); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if opts.ui.IsValid() {
		ui := newUI(opts)
		served := make(chan struct{})
		go func() {
			defer close(served)
			ui.Start() //nolint:errcheck // it ends the process itself when it cannot listen
		}()
		defer func() { ui.Stop(); <-served }()
		if err := awaitListener(startCtx, opts.ui.String()); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "ready frontend=%s ui=http://%s\n", opts.frontend, opts.ui)
	} else {
		fmt.Fprintf(stdout, "ready frontend=%s\n", opts.frontend)
	}
	<-ctx.Done()
	return nil
}

// awaitNamespace returns once the frontend describes the namespace.
func awaitNamespace(ctx context.Context, address, namespace string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer conn.Close()
	frontend := workflowservice.NewWorkflowServiceClient(conn)
	return poll(ctx, fmt.Sprintf("namespace %s on %s", namespace, address), func(ctx context.Context) error {
		_, err := frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
		return err
	})
}

// poll repeats try until it succeeds or ctx ends; then the latest error tells
// what was still wrong.
func poll(ctx context.Context, what string, try func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %w)", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
