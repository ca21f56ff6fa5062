package activities

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// What upstream answers over HTTP, seen from the workflow: one call each, and
// nothing written unless it is an answer about the account.
func TestUpstreamOverHTTP(t *testing.T) {
	answer := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	now := time.Now().UTC()
	for _, c := range []struct {
		name     string
		handler  http.HandlerFunc
		notFound string
		outcome  contract.Outcome
		class    string
		reason   string
		after    time.Duration
	}{
		{name: "200", handler: answer(200, `{"email":"a@b"}`), outcome: contract.OutcomeWritten},
		{name: "404", handler: answer(404, ""), outcome: contract.OutcomeDeleted},
		{name: "410", handler: answer(410, ""), outcome: contract.OutcomeDeleted},
		{name: "404 that parks", handler: answer(404, ""), notFound: upstream.NotFoundPark, class: contract.ClassRefused, reason: "404 Not Found"},
		{name: "401", handler: answer(401, ""), class: contract.ClassDenied, reason: "401 Unauthorized"},
		{name: "redirect", handler: answer(301, "", "Location", "/login"), class: contract.ClassDenied, reason: "301 Moved Permanently"},
		{name: "429 with seconds", handler: answer(429, "", "Retry-After", "3"), class: contract.ClassThrottled, reason: "429 Too Many Requests", after: 3 * time.Second},
		{name: "429 with a date", handler: answer(429, "", "Date", now.Format(http.TimeFormat), "Retry-After", now.Add(5*time.Second).Format(http.TimeFormat)), class: contract.ClassThrottled, reason: "429 Too Many Requests", after: 5 * time.Second},
		{name: "500", handler: answer(500, ""), class: contract.ClassTransient, reason: "500 Internal Server Error"},
		{name: "503", handler: answer(503, ""), class: contract.ClassThrottled, reason: "503 Service Unavailable"},
		{name: "page", handler: answer(200, "<html>log in</html>"), class: contract.ClassDenied, reason: "200 with a page instead of JSON"},
		{name: "malformed", handler: answer(200, `{"email":`), class: contract.ClassRefused, reason: "200 with malformed JSON"},
		{name: "huge", handler: answer(200, `"`+strings.Repeat("x", 4<<20)+`"`), class: contract.ClassRefused, reason: "200 with a body above UPSTREAM_MAX_BYTES"},
		{name: "reset", handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, class: contract.ClassTransient, reason: "connection reset"},
		{name: "silent", handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, class: contract.ClassTransient, reason: "timeout"},
		{name: "never ends", handler: func(w http.ResponseWriter, r *http.Request) {
			for ; r.Context().Err() == nil; time.Sleep(time.Millisecond) {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
			}
		}, class: contract.ClassTransient, reason: "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				c.handler(w, r)
			}))
			defer server.Close()
			cfg := upstream.Default()
			cfg.URL, cfg.Timeout = upstream.URL(server.URL+"/{account}"), 300*time.Millisecond
			if c.notFound != "" {
				cfg.NotFound = c.notFound
			}
			client := upstream.New(cfg)
			defer client.Close()
			f.fetch = client.Fetch

			result, err := f.run(f.input(f.changed(time.Minute, 1)))
			require.EqualValues(t, 1, requests.Load())
			if c.class == "" {
				require.NoError(t, err)
				require.Equal(t, c.outcome, result.Outcome)
				require.Len(t, f.store.syncs, 1)
				return
			}
			failed := f.failure(err)
			require.Equal(t, c.class, failed.Class)
			require.Equal(t, c.reason, failed.Reason)
			require.EqualValues(t, c.after, failed.RetryAfter)
			require.False(t, failed.Charged, "a first failure")
			require.False(t, failed.At.IsZero())
			require.Empty(t, f.store.syncs)
		})
	}
}

func TestConfig(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	err := Config{MaxClockSkew: -1}.Validate()
	for _, name := range []string{"PERMIT_WAIT", "ROW_CHECK_TIMEOUT", "WRITE_TIMEOUT", "MAX_CLOCK_SKEW"} {
		require.ErrorContains(t, err, name)
	}
}
