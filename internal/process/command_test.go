package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

type settings struct {
	Size int `env:"SIZE" help:"How large."`
}

func invoke(t *testing.T, command process.Command, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = process.Run(context.Background(), "tool", args, []process.Command{command}, func(string) (string, bool) { return "", false }, &out, &errs)
	return out.String(), errs.String(), code
}

func TestCommands(t *testing.T) {
	s := settings{Size: 3}
	var got *process.Invocation
	failure := error(nil)
	loud := false
	command := process.Command{
		Name: "box open NAME", Summary: "Open a box.", Settings: []any{&s},
		Flags: func(flags *flag.FlagSet) { flags.BoolVar(&loud, "loud", false, "Make noise.") },
		Validate: func() error {
			if s.Size < 1 {
				return errors.Join(config.Fault{Name: "SIZE", Value: "0", Problem: "too small"}, errors.New("and more"))
			}
			return nil
		},
		Run: func(_ context.Context, i *process.Invocation) error { got = i; return failure },
	}

	_, stderr, code := invoke(t, command, "box", "open", "red", "--size", "9", "--loud")
	require.Equal(t, process.ExitOK, code, stderr)
	require.Equal(t, []string{"red"}, got.Args)
	require.Equal(t, 9, s.Size)
	require.True(t, loud)

	_, stderr, code = invoke(t, command, "box", "open")
	require.Equal(t, process.ExitUsage, code)
	require.Equal(t, "tool box open: NAME is missing\n", stderr)
	optional := command
	optional.Name = "box open [NAME]"
	_, stderr, code = invoke(t, optional, "box", "open")
	require.Equal(t, process.ExitOK, code, stderr)
	_, _, code = invoke(t, optional, "box", "open", "red", "blue")
	require.Equal(t, process.ExitUsage, code)
	_, stderr, code = invoke(t, command, "box", "open", "red", "blue")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, `unexpected argument "blue"`)
	_, stderr, code = invoke(t, command, "box", "open", "red", "--siez", "hush")
	require.Equal(t, process.ExitUsage, code)
	require.Equal(t, "tool box open: there is no flag --siez; did you mean --size?\n", stderr, "what follows is not printed: it may be a secret")
	_, stderr, code = invoke(t, command, "box", "open", "red", "--size=0")
	require.Equal(t, process.ExitUsage, code)
	require.Equal(t, "tool box open: 2 things to mend:\n  SIZE=0: too small\n  and more\n", stderr)
	_, stderr, code = invoke(t, command, "box", "open", "red", "--size=x")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, `invalid value "x" for --size: cannot be read: want a whole number`)
	_, stderr, code = invoke(t, command, "box", "close")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, `there is no command "box close"`)

	failure = errors.New("jammed")
	_, stderr, code = invoke(t, command, "box", "open", "red", "--size=1")
	require.Equal(t, process.ExitFailed, code)
	require.Equal(t, "tool box open: jammed\n", stderr)

	stdout, _, code := invoke(t, command, "box", "open", "--help")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "--size [SIZE]")
	require.Contains(t, stdout, "--loud")
	stdout, _, code = invoke(t, command, "help")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "box open NAME  Open a box.")
	_, _, code = invoke(t, command)
	require.Equal(t, process.ExitUsage, code)
}

func TestBoundedGivesUpOnWhatIsStuck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := process.Bounded(ctx, 10*time.Millisecond, func() error { <-release; return nil })
	require.ErrorContains(t, err, "did not stop within 10ms")
	require.ErrorIs(t, process.Bounded(ctx, time.Minute, func() error { return io.EOF }), io.EOF)
}

func TestStatus(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	taken := process.ServeStatus(t.Context(), address, process.Status{})
	usage := process.UsageError{}
	require.ErrorAs(t, taken, &usage)
	require.ErrorContains(t, taken, "STATUS_ADDR="+address)
	require.NoError(t, listener.Close())

	sick := errors.New("a loop is stuck")
	tally := telemetry.NewTally(telemetry.Discard)
	tally.Count("sync.calls", 3)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- process.ServeStatus(ctx, address, process.Status{
			Snapshot: func() any { return map[string]int{"uncommitted": 7} },
			Metrics:  tally,
			Live:     func() error { return sick },
			Ready:    func() error { return nil },
		})
	}()
	get := func(path string) (int, string) {
		var response *http.Response
		require.Eventually(t, func() bool {
			var err error
			response, err = http.Get("http://" + address + path)
			return err == nil
		}, 10*time.Second, time.Millisecond)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, strings.TrimSpace(string(body))
	}
	code, body := get("/status")
	require.Equal(t, http.StatusOK, code)
	status := struct {
		Uncommitted int
		Process     struct {
			PID          int
			Started, Now time.Time
		}
		Metrics telemetry.Totals
	}{}
	require.NoError(t, json.Unmarshal([]byte(body), &status))
	require.Equal(t, 7, status.Uncommitted)
	require.Equal(t, os.Getpid(), status.Process.PID)
	require.WithinRange(t, status.Process.Now, status.Process.Started, time.Now())
	require.Equal(t, map[string]int64{"sync.calls": 3}, status.Metrics.Counts)
	code, body = get("/")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "<title>Quiesce</title>")
	code, _ = get("/nothing")
	require.Equal(t, http.StatusNotFound, code)
	code, body = get("/livez")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "a loop is stuck", body)
	code, _ = get("/readyz")
	require.Equal(t, http.StatusOK, code)
	cancel()
	require.NoError(t, <-served)
}

func TestHelpSaysWhatACommandNeeds(t *testing.T) {
	s := settings{Size: 3}
	open := process.Command{
		Name: "box open NAME", Summary: "Open a box.", Needs: "SIZE", Examples: []string{"box open red"}, Settings: []any{&s},
		Flags: func(flags *flag.FlagSet) { flags.Bool("loud", false, "Make noise.") },
		Run:   func(context.Context, *process.Invocation) error { return nil },
	}
	for _, args := range [][]string{{"box", "open", "--help"}, {"help", "box", "open"}} {
		stdout, _, code := invoke(t, open, args...)
		require.Equal(t, process.ExitOK, code)
		require.Equal(t, `usage: tool box open NAME [flags]

Open a box.

Needs SIZE.

Examples:
  tool box open red

Flags:
  --loud
        Make noise.

Settings, as flags or environment variables:
  --size [SIZE] (default 3)
        How large.

Exit status: 0 done; 1 tried and failed; 2 settings or arguments are wrong, and nothing was done.
`, stdout)
	}
	// The first word of a command is a question for its family.
	stdout, _, code := invoke(t, open, "box", "--help")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "box open NAME  Open a box.")
	require.NotContains(t, stdout, "version", "what has another first word")
	for _, args := range [][]string{{"box"}, {}} {
		stdout, stderr, code := invoke(t, open, args...)
		require.Equal(t, process.ExitUsage, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "box open NAME  Open a box.")
	}
	_, stderr, _ := invoke(t, open, "box", "shut")
	require.Equal(t, "tool: there is no command \"box shut\"; want one of: box open\n", stderr)
	_, stderr, _ = invoke(t, open, "crate", "shut")
	require.Equal(t, "tool: there is no command \"crate\"; want one of: box open, version\n", stderr)
	stdout, _, code = invoke(t, open, "--version")
	require.Equal(t, process.ExitOK, code)
	require.Contains(t, stdout, "tool dev")
}
