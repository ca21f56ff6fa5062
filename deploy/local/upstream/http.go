package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// PathPrefix is followed by the path-escaped account.
const PathPrefix = "/accounts/"

// hugeBytes is the size of a huge body.
const hugeBytes = 64 << 20

var cities = [...]string{"Oslo", "Lagos", "Lima", "Turin", "Osaka", "Perth", "Quito"}

type address struct {
	City string `json:"city"`
}

type payload struct {
	Account string  `json:"account"`
	Version int64   `json:"version"`
	Email   string  `json:"email"`
	Address address `json:"address"`
}

// ServeHTTP answers GET /accounts/{account}. It reads the escaped path itself:
// a ServeMux would clean accounts such as ".." away with a redirect.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	escaped, found := strings.CutPrefix(r.URL.EscapedPath(), PathPrefix)
	account, err := url.PathUnescape(escaped)
	if !found || err != nil || account == "" || strings.Contains(escaped, "/") {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	call, version, fault := s.begin(account, r)
	if fault != nil {
		if !sleep(r, fault.Delay) {
			return
		}
		if s.fail(w, r, call, *fault) {
			return
		}
	}
	if version == 0 {
		s.answered(call, http.StatusNotFound, 0)
		http.Error(w, `{"error":"no such account"}`, http.StatusNotFound)
		return
	}
	// Recorded before it is sent: whoever has read the answer finds the record.
	s.answered(call, http.StatusOK, version)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(payload{ //nolint:errcheck // the client is gone
		Account: account,
		Version: version,
		Email:   fmt.Sprintf("v%d@example.com", version),
		Address: address{City: cities[version%int64(len(cities))]},
	})
}

// fail answers as the fault says and reports whether it answered at all: one
// with a delay only does not.
func (s *Simulator) fail(w http.ResponseWriter, r *http.Request, call int, fault Fault) bool {
	if fault.RetryAfter != "" {
		w.Header().Set("Retry-After", fault.RetryAfter)
	}
	switch fault.Kind {
	case "":
		if fault.Status == 0 {
			return false
		}
		s.answered(call, fault.Status, 0)
		w.WriteHeader(fault.Status)
	case Reset:
		reset(w)
	case Hang:
		<-r.Context().Done()
	case Garbage:
		s.answered(call, http.StatusOK, 0)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"account": "trunc`) //nolint:errcheck
	case HTML:
		s.answered(call, http.StatusOK, 0)
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><html><title>Sign in</title></html>") //nolint:errcheck
	case Redirect:
		s.answered(call, http.StatusFound, 0)
		w.Header().Set("Location", "/redirected"+r.URL.EscapedPath())
		w.WriteHeader(http.StatusFound)
	case Huge:
		s.answered(call, http.StatusOK, 0)
		stream(w, hugeBytes)
	case Endless:
		s.answered(call, http.StatusOK, 0)
		stream(w, -1)
	default:
		s.answered(call, http.StatusInternalServerError, 0)
		http.Error(w, fmt.Sprintf("simulator: unknown fault %q", fault.Kind), http.StatusInternalServerError)
	}
	return true
}

// stream writes a JSON string of the given size, or one that ends only with the
// connection if size is negative.
func stream(w http.ResponseWriter, size int) {
	w.Header().Set("Content-Type", "application/json")
	if _, err := io.WriteString(w, `{"account":"`); err != nil {
		return
	}
	chunk := strings.Repeat("x", 32<<10)
	for sent := 0; size < 0 || sent < size; sent += len(chunk) {
		if _, err := io.WriteString(w, chunk); err != nil {
			return
		}
	}
	io.WriteString(w, `"}`) //nolint:errcheck
}

// reset closes the connection so that the client sees RST instead of an end.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		tcp.SetLinger(0) //nolint:errcheck
	}
	conn.Close()
}

// sleep waits for d; it returns false when the client gave up before.
func sleep(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
