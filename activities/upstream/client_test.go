package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

func client(t *testing.T, url string, edit ...func(*Config)) *Client {
	cfg := Default()
	cfg.URL = URL(url + "/accounts/{account}")
	for _, e := range edit {
		e(&cfg)
	}
	require.NoError(t, cfg.Validate())
	c := New(cfg)
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func failure(t *testing.T, err error) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.NotContains(t, e.Error(), "secret-account", "no account data in reasons")
	return e
}

func TestAnswers(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	big := `"` + strings.Repeat("x", 1<<20) + `"`
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		class  string // "" is success
		reason string
		after  time.Duration
		gone   bool
	}{
		{name: "ok", status: 200, body: `{"email":"a@b"}`},
		{name: "created", status: 201, body: `[]`},
		{name: "not found", status: 404, body: `{"error":"no such account"}`, gone: true},
		{name: "not found and nothing more", status: 404, gone: true},
		{name: "gone", status: 410, body: `{"error":"gone"}`, gone: true},
		{name: "not found with a large body", status: 404, body: big, class: contract.ClassDenied, reason: "404 Not Found with a page or text instead of JSON"},
		{name: "not found as a page", status: 404, header: map[string]string{"Content-Type": "text/html; charset=utf-8"}, body: "<html>", class: contract.ClassDenied, reason: "404 Not Found with a page or text instead of JSON"},
		{name: "Go's mux", status: 404, body: "404 page not found\n", class: contract.ClassDenied, reason: "404 Not Found with a page or text instead of JSON"},
		{name: "an ingress without a backend", status: 404, body: "default backend - 404", class: contract.ClassDenied, reason: "404 Not Found with a page or text instead of JSON"},
		{name: "gone in words", status: 410, body: "Gone", class: contract.ClassDenied, reason: "410 Gone with a page or text instead of JSON"},
		{name: "bad request", status: 400, class: contract.ClassRefused, reason: "400 Bad Request"},
		{name: "unauthorized", status: 401, class: contract.ClassDenied, reason: "401 Unauthorized"},
		{name: "redirect", status: 302, header: map[string]string{"Location": "/other"}, class: contract.ClassDenied, reason: "302 Found"},
		{name: "request timeout", status: 408, class: contract.ClassTransient, reason: "408 Request Timeout"},
		{name: "throttled, seconds", status: 429, header: map[string]string{"Retry-After": "7"}, class: contract.ClassThrottled, reason: "429 Too Many Requests", after: 7 * time.Second},
		{name: "throttled, date by a server whose clock is wrong", status: 429, header: map[string]string{"Date": now.Add(time.Hour).Format(http.TimeFormat), "Retry-After": now.Add(time.Hour + 9*time.Second).Format(http.TimeFormat)}, class: contract.ClassThrottled, reason: "429 Too Many Requests", after: 9 * time.Second},
		{name: "throttled, nonsense", status: 429, header: map[string]string{"Retry-After": "-soon"}, class: contract.ClassThrottled, reason: "429 Too Many Requests"},
		{name: "unavailable", status: 503, header: map[string]string{"Retry-After": "1"}, class: contract.ClassThrottled, reason: "503 Service Unavailable", after: time.Second},
		{name: "server error", status: 500, body: "secret-account broke it", class: contract.ClassTransient, reason: "500 Internal Server Error"},
		{name: "page", status: 200, body: " <!doctype html><p>log in", class: contract.ClassDenied, reason: "200 with a page instead of JSON"},
		{name: "truncated JSON", status: 200, body: `{"email":"a`, class: contract.ClassRefused, reason: "200 with malformed JSON"},
		{name: "two values", status: 200, body: `{}{}`, class: contract.ClassRefused, reason: "200 with malformed JSON"},
		{name: "empty", status: 200, class: contract.ClassRefused, reason: "200 with an empty body"},
		{name: "no content", status: 204, class: contract.ClassRefused, reason: "204 with an empty body"},
		{name: "not UTF-8", status: 200, body: "\"\xff\"", class: contract.ClassRefused, reason: "200 with a body that is not UTF-8"},
		{name: "too large", status: 200, body: big, class: contract.ClassRefused, reason: "200 with a body above UPSTREAM_MAX_BYTES"},
		{name: "error with a large body", status: 500, body: big, class: contract.ClassTransient, reason: "500 Internal Server Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			got, err := client(t, url).Fetch(t.Context(), "secret-account")
			require.EqualValues(t, 1, calls.Load())
			if c.class == "" {
				require.NoError(t, err)
				require.Equal(t, c.gone, got.Deleted)
				require.Equal(t, c.status, got.Status)
				if !c.gone {
					require.Equal(t, c.body, string(got.Body))
				}
				return
			}
			e := failure(t, err)
			require.Equal(t, c.class, e.Class)
			require.Equal(t, c.reason, e.Reason)
			require.Equal(t, c.after, e.RetryAfter)
			require.Equal(t, c.status, e.Status)
		})
	}
}

func TestNotFoundParks(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	_, err := client(t, url, func(c *Config) { c.NotFound = NotFoundPark }).Fetch(t.Context(), "a")
	require.Equal(t, contract.ClassRefused, failure(t, err).Class)
}

// Any key arrives as one segment, and as itself.
func TestAnyKeyIsOnePathSegment(t *testing.T) {
	type seen struct{ path, raw, query string }
	requests := make(chan seen, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests <- seen{r.URL.Path, strings.Split(r.RequestURI, "?")[0], r.URL.RawQuery}
		_, _ = io.WriteString(w, "{}")
	})
	keys := []string{
		"a", "A", "a/b", "/", "//", ".", "..", "...", "../x", "a.b", "%2f", "%", "?", "#", "a?b=c#d", " ", "+", "&;=",
		"\x00", "\r\n", "héllo wörld", "日本", "\xff\xfe", "{account}", "~-_.", strings.Repeat("k", 512), "\\", ":",
	}
	for i := range 256 {
		keys = append(keys, "x"+string([]byte{byte(i)})+"y")
	}
	c := client(t, url)
	for _, key := range keys {
		_, err := c.Fetch(t.Context(), key)
		require.NoError(t, err, "%q", key)
		got := <-requests
		require.Equal(t, "/accounts/"+key, got.path, "%q", key)
		require.Equal(t, 2, strings.Count(got.raw, "/"), "%q", key)
		require.Empty(t, got.query)
		if strings.Trim(key, ".") == "" {
			require.NotContains(t, got.raw, ".")
		}
	}
}

// A server that closes a kept-alive connection when the next request arrives
// sees that request once: one permit, one attempt. (net/http would send a plain
// GET twice.) And until then the connection is reused.
func TestNoSilentResend(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	var attempts, connections atomic.Int32
	var header atomic.Value
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					header.Store(fmt.Sprint(req.Header, req.ContentLength, req.TransferEncoding))
					if attempts.Add(1) == 3 {
						return // closes without an answer
					}
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				}
			}()
		}
	}()
	c := client(t, "http://"+l.Addr().String())
	for range 2 {
		_, err = c.Fetch(t.Context(), "a")
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, connections.Load(), "kept alive")
	require.Equal(t, "map[Accept:[application/json] Accept-Encoding:[gzip] User-Agent:[quiesce]] 0 []", header.Load(), "an ordinary GET")
	_, err = c.Fetch(t.Context(), "secret-account")
	require.Equal(t, contract.ClassTransient, failure(t, err).Class)
	require.EqualValues(t, 3, attempts.Load())
	require.EqualValues(t, 1, connections.Load())
}

func TestTransportFailures(t *testing.T) {
	hijack := func(w http.ResponseWriter, text string, linger bool) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		if !linger {
			_ = conn.(*net.TCPConn).SetLinger(0) // sends a reset
		}
		_ = conn.Close()
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, c := range []struct {
		name, reason string
		class        string
		status       int // 0 for any
		handler      http.HandlerFunc
		url          string
	}{
		{name: "reset", reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) { hijack(w, "", false) }},
		{name: "closed", reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) { hijack(w, "", true) }},
		{name: "cut in the body", reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", true)
		}},
		{name: "404 cut before the body", status: 404, reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n", true)
		}},
		{name: "404 cut in the body", status: 404, reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{}", true)
		}},
		{name: "410 cut in its chunks", status: 410, reason: "connection reset", handler: func(w http.ResponseWriter, _ *http.Request) {
			hijack(w, "HTTP/1.1 410 Gone\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", true)
		}},
		{name: "404 without its body in time", status: 404, reason: "timeout", handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "21")
			w.WriteHeader(http.StatusNotFound)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{name: "silent", reason: "timeout", handler: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "never-ending body", reason: "timeout", handler: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}},
		{name: "fast never-ending body", class: contract.ClassRefused, reason: "200 with a body above UPSTREAM_MAX_BYTES", handler: func(w http.ResponseWriter, r *http.Request) {
			for chunk := make([]byte, 32<<10); r.Context().Err() == nil; {
				_, _ = w.Write(chunk)
			}
		}},
		{name: "refused", reason: "connection refused", url: closed.URL},
		{name: "no such host", reason: "host not found", url: "http://host.invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := c.url
			if c.handler != nil {
				url = serve(t, c.handler)
			}
			begin := time.Now()
			_, err := client(t, url, func(c *Config) { c.Timeout = 200 * time.Millisecond }).Fetch(t.Context(), "secret-account")
			e := failure(t, err)
			if c.class == "" {
				c.class = contract.ClassTransient
			}
			require.Equal(t, c.class, e.Class)
			if c.status != 0 {
				require.Equal(t, c.status, e.Status)
			}
			if c.name != "no such host" || e.Reason != "timeout" { // a resolver may just be slow
				require.Equal(t, c.reason, e.Reason)
			}
			require.Less(t, time.Since(begin), 2*time.Second)
		})
	}
}

func TestCancelledCall(t *testing.T) {
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := client(t, url).Fetch(ctx, "a")
	require.Equal(t, "cancelled", failure(t, err).Reason)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTokenIsReadAgainWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	got := make(chan string, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "{}")
	})
	c := client(t, url, func(c *Config) { c.TokenFile = path })
	require.ErrorContains(t, c.Check(), "UPSTREAM_TOKEN_FILE")
	for _, token := range []string{"first", "second-and-longer", "third"} {
		require.NoError(t, os.WriteFile(path, []byte(token+"\n"), 0o600))
		require.NoError(t, c.Check())
		_, err := c.Fetch(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "Bearer "+token, <-got)
	}
	// One of the same length, as they mostly are: only the time tells.
	require.NoError(t, os.WriteFile(path, []byte("forth\n"), 0o600))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Second)))
	_, err := c.Fetch(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "Bearer forth", <-got)
	require.NoError(t, os.WriteFile(path, []byte("two words\nand lines"), 0o600))
	_, err = c.Fetch(t.Context(), "a")
	require.Equal(t, contract.ClassTransient, failure(t, err).Class)
	require.Empty(t, got, "no call without a token")
}

// Keys in the query stay between us and upstream: no setting that is printed and no
// error that is logged shows them.
func TestKeysInTheURLAreNotPrinted(t *testing.T) {
	for template, shown := range map[URL]string{
		"https://h/v1/{account}":                        "https://h/v1/{account}",
		"https://h/v1?id={account}&key=s3cret&v=s3cret": "https://h/v1?id={account}&key=[redacted]&v=[redacted]",
		"https://h/{account}?s3cret":                    "https://h/{account}?=[redacted]",
		"https://u:s3cret@h/{account}?k=s3cret":         "https://u:xxxxx@h/%7Baccount%7D?k=[redacted]",
		"https://u:s3%cret@h/{account}":                 "https://[redacted]@h/{account}",
	} {
		require.Equal(t, shown, template.String())
		text, err := template.MarshalText()
		require.NoError(t, err)
		require.Equal(t, shown, string(text))
	}
	cfg := Default()
	cfg.URL = "http://127.0.0.1:1/{account}?key=s3cret"
	require.NoError(t, cfg.Validate())
	_, err := New(cfg).Fetch(t.Context(), "secret-account")
	e := failure(t, err)
	require.Equal(t, "connection refused", e.Reason)
	require.NotContains(t, e.Err.Error(), "s3cret")
	require.NotContains(t, e.Err.Error(), "secret-account")
	cfg.URL = "ftp://h/{account}?key=s3cret"
	require.NotContains(t, cfg.Validate().Error(), "s3cret")
}

func TestConfigNamesEveryFault(t *testing.T) {
	require.ErrorContains(t, Default().Validate(), "UPSTREAM_URL: is required")
	err := Config{URL: "http://u:secret@h/{account}", NotFound: "x"}.Validate()
	for _, name := range []string{"UPSTREAM_URL", "UPSTREAM_TIMEOUT", "UPSTREAM_MAX_BYTES", "UPSTREAM_NOT_FOUND"} {
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, err.Error(), "secret")
	slow := Default()
	slow.URL, slow.Timeout = "http://h/{account}", time.Minute
	require.NoError(t, slow.Validate())
	slow.Timeout++
	require.ErrorContains(t, slow.Validate(), "UPSTREAM_TIMEOUT=1m0.000000001s: must be above 0 and at most 1m")
	for url, ok := range map[string]bool{
		"https://h/v1/{account}/x":      true,
		"http://h?id={account}":         true,
		"http://h/x":                    false,
		"http://{account}/x":            false,
		"http://h{account}/x":           false,
		"{account}://h/":                false,
		"ftp://h/{account}":             false,
		"/v1/{account}":                 false,
		"http://h/{account}#top":        false,
		"http://h/%zz/{account}":        false,
		"http://[::1]:80/a/{account}?x": true,
	} {
		cfg := Default()
		cfg.URL = URL(url)
		require.Equal(t, ok, cfg.Validate() == nil, "%s: %v", url, cfg.Validate())
	}
}

func TestReachMakesNoCall(t *testing.T) {
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	cfg := Default()
	cfg.URL = URL(s.URL + "/accounts/{account}")
	require.NoError(t, New(cfg).Reach(t.Context()))
	require.Zero(t, calls.Load())
	s.Close()
	require.ErrorContains(t, New(cfg).Reach(t.Context()), "connection refused")
}
