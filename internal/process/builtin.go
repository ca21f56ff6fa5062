package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// healthTimeout bounds what `health` waits for an answer.
const healthTimeout = 5 * time.Second

// withBuiltins adds the commands that every binary has.
func withBuiltins(binary string, commands []Command) []Command {
	for _, c := range commands {
		if c.Name == "run" {
			commands = append(commands[:len(commands):len(commands)], healthCommand(binary, c.Settings))
			break
		}
	}
	return append(commands[:len(commands):len(commands)], Command{
		Name:     "version",
		Summary:  "Print version, build and Go version.",
		Examples: []string{"version"},
		Run: func(_ context.Context, i *Invocation) error {
			_, err := fmt.Fprintf(i.Stdout, "%s %s (build %s, %s)\n", binary, Version, BuildID, runtime.Version())
			return err
		},
	})
}

// healthCommand asks a running process of this binary whether it is ready, where
// there is no other HTTP client: in a container image of nothing else. Where it
// listens is what `run` would take from the same environment.
func healthCommand(binary string, run []any) Command {
	settings := struct {
		StatusAddr string `env:"STATUS_ADDR" help:"Address of the process to ask."`
	}{StatusAddr: statusAddr(run)}
	return Command{
		Name:     "health",
		Summary:  "Ask the process at STATUS_ADDR whether it is ready.",
		Help:     "For health checks of containers: exit status 0 if /readyz says so, 1 with its reason if not.",
		Examples: []string{"health", "health --status-addr 127.0.0.1:8081"},
		Settings: []any{&settings},
		Run: func(ctx context.Context, i *Invocation) error {
			return checkHealth(ctx, binary, settings.StatusAddr, i.Stdout)
		},
	}
}

// statusAddr returns the default of STATUS_ADDR in the settings of `run`.
func statusAddr(run []any) string {
	if len(run) == 0 || reflect.ValueOf(run[0]).Kind() != reflect.Pointer {
		return ""
	}
	for _, s := range config.Bind("", run...).Settings() {
		if s.Name == "STATUS_ADDR" {
			return s.Default
		}
	}
	return ""
}

func checkHealth(ctx context.Context, binary, address string, stdout io.Writer) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return UsageError{config.Fault{Name: "STATUS_ADDR", Value: address, Problem: "no host:port, so there is nothing to ask"}}
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere, so here too
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no %s answers at STATUS_ADDR=%s; is it running, with that STATUS_ADDR? %w", binary, address, err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at STATUS_ADDR=%s is not ready: %s", binary, address, strings.TrimSpace(string(text)))
	}
	_, err = stdout.Write(text)
	return err
}
