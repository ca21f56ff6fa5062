package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/page"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// Status is what the status server tells.
type Status struct {
	// Snapshot is served at /status as a JSON object, with what every process
	// tells of itself added as "process", "dependencies" and "metrics".
	Snapshot func() any
	// Dependencies are what the process depends on; may be nil.
	Dependencies *Dependencies
	// Metrics are served as "metrics" if they are a [telemetry.Tally].
	Metrics telemetry.Metrics
	// Live and Ready answer /livez and /readyz: nil is 200, an error is 503 with
	// its text.
	Live, Ready func() error
	// Routes are further routes, by pattern; may be nil.
	Routes map[string]http.Handler
}

// self is what a process tells of itself.
type self struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"` // when the status server started; differs after a restart
	Now     time.Time `json:"now"`     // by this machine's clock, for ages
}

// ServeStatus serves s, and the page that shows it at /, at address until ctx is
// done; it returns at once if address is empty or "none". A port that is taken is a usage error that names
// STATUS_ADDR.
func ServeStatus(ctx context.Context, address string, s Status) error {
	if address == "" || address == "none" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return UsageError{config.Fault{Name: "STATUS_ADDR", Value: address, Problem: err.Error() + "; name another, or none for no status page"}}
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
	started := time.Now()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.json(self{PID: os.Getpid(), Started: started, Now: time.Now()})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client may be gone
	})
	mux.HandleFunc("GET /livez", probe(s.Live))
	mux.HandleFunc("GET /readyz", probe(s.Ready))
	for pattern, handler := range s.Routes {
		mux.Handle(pattern, handler)
	}
	mux.Handle("GET /", page.Handler())
	return mux
}

// json returns the snapshot's object with three members added.
func (s Status) json(process self) ([]byte, error) {
	totals := telemetry.NewTally(telemetry.Discard).Totals()
	if tally, ok := s.Metrics.(*telemetry.Tally); ok {
		totals = tally.Totals()
	}
	snapshot, err := json.Marshal(s.Snapshot())
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	added, err := json.Marshal(struct {
		Process      self             `json:"process"`
		Dependencies []Dependency     `json:"dependencies"`
		Metrics      telemetry.Totals `json:"metrics"`
	}{process, s.Dependencies.Snapshot(), totals})
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	if inside := snapshot[1 : len(snapshot)-1]; len(inside) > 0 {
		added = slices.Concat([]byte("{"), inside, []byte(","), added[1:])
	}
	var text bytes.Buffer
	if err := json.Indent(&text, added, "", "  "); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
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
