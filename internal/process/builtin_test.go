package process_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/process"
)

func TestHealthAsksTheProcessOfTheSameEnvironment(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)

	common := process.DefaultCommon(address)
	health := func(statusAddr string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		commands := []process.Command{{Name: "run", Settings: []any{&common}}}
		code = process.Run(context.Background(), "bridge", []string{"health"}, commands, func(name string) (string, bool) {
			return statusAddr, name == "STATUS_ADDR"
		}, &out, &errs)
		return out.String(), errs.String(), code
	}
	_, stderr, code := health("")
	require.Equal(t, process.ExitFailed, code)
	require.Contains(t, stderr, "no bridge answers at STATUS_ADDR="+address)

	sick := error(nil)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- process.ServeStatus(ctx, address, process.Status{Ready: func() error { return sick }})
	}()
	require.Eventually(t, func() bool { _, _, code := health(""); return code == process.ExitOK }, 10*time.Second, 5*time.Millisecond,
		"the default of run holds for health")
	_, stderr, code = health("0.0.0.0:" + port)
	require.Equal(t, process.ExitOK, code, stderr)
	sick = errors.New("3 partitions are stopped")
	_, stderr, code = health("")
	require.Equal(t, process.ExitFailed, code)
	require.Contains(t, stderr, "is not ready: 3 partitions are stopped")
	_, stderr, code = health("nowhere")
	require.Equal(t, process.ExitUsage, code)
	require.Contains(t, stderr, "STATUS_ADDR=nowhere: ")
	cancel()
	require.NoError(t, <-served)
}

func TestVersion(t *testing.T) {
	stdout, _, code := invoke(t, process.Command{Name: "run", Settings: []any{&settings{}}}, "version")
	require.Equal(t, process.ExitOK, code)
	require.Regexp(t, `^tool dev \(build none, go`, stdout)
}
