package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Status is what the status server tells.
type Status struct {
	// Snapshot is served as JSON at /status.
	Snapshot func() any
	// Live and Ready answer /livez and /readyz: nil is 200, an error is 503 with
	// its text.
	Live, Ready func() error
}

// ServeStatus serves s at address until ctx is done; it returns at once if
// address is empty. A port that is taken is a usage error that names
// STATUS_ADDR.
func ServeStatus(ctx context.Context, address string, s Status) error {
	if address == "" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return UsageError{config.Fault{Name: "STATUS_ADDR", Value: address, Problem: err.Error()}}
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() {
		// Status requests are short; there is nothing to wait for.
		_ = server.Close()
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("status server at %s: %w", address, err)
	}
	return nil
}

func (s Status) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(s.Snapshot()) // the client may be gone
	})
	mux.HandleFunc("GET /livez", probe(s.Live))
	mux.HandleFunc("GET /readyz", probe(s.Ready))
	return mux
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
