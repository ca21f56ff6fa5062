package upstream

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Connecting has a limit of its own, however long a call may take: a server that
// accepts and says nothing more holds up the TLS handshake. What was sent has all of
// UPSTREAM_TIMEOUT.
func TestARequestIsWrittenSoonOrNever(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close() //nolint:errcheck // ends the test
	slow := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(300 * time.Millisecond)
		_, _ = w.Write([]byte("{}"))
	})
	longer := func(c *Config) { c.Timeout = time.Minute }

	require.Equal(t, contract.SendWithin, New(Default()).sendWithin)
	c := client(t, "https://"+silent.Addr().String(), longer)
	c.sendWithin = 100 * time.Millisecond
	begin := time.Now()
	_, err = c.Fetch(t.Context(), "a")
	e := failure(t, err)
	require.Equal(t, contract.ClassTransient, e.Class)
	require.Equal(t, "not connected in time", e.Reason)
	require.Less(t, time.Since(begin), 10*time.Second)

	c = client(t, slow, longer)
	c.sendWithin = 100 * time.Millisecond
	_, err = c.Fetch(t.Context(), "a")
	require.NoError(t, err)
}
