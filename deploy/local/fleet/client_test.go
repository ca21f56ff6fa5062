package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/worker/service"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// clientVariable makes the test binary a client instead; its value is a
// clientConfig.
const clientVariable = "FLEET_CLIENT"

// clientConfig is what one client process does.
type clientConfig struct {
	Temporal, Namespace string
	Pipeline            string
	RPS                 int
	Fleets              int // budget clients in this process; 0 is 1
	Callers             int // goroutines of each that call without a pause; 0: idle
	URL                 string
	Calls               string // file that takes a line per call: when it started, when it was sent, in ns since 1970
}

// runClient calls until SIGTERM, then gives its share back.
func runClient(text string) error {
	var c clientConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("%s: %w", clientVariable, err)
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	temporal, err := client.Dial(client.Options{HostPort: c.Temporal, Namespace: c.Namespace, Logger: log.NewStructuredLogger(logger)})
	if err != nil {
		return err
	}
	defer temporal.Close()
	calls, err := os.OpenFile(c.Calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer calls.Close()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	granter := budget.Temporal{Client: temporal, Pipeline: c.Pipeline, TaskQueue: c.Pipeline}
	sharing, called := context.WithCancel(context.Background())
	defer called()
	var callers, more sync.WaitGroup
	defer more.Wait()
	start := func() *budget.Fleet {
		fleet := budget.NewFleet(budget.Config{UpstreamRPS: c.RPS}, granter, telemetry.Discard, logger)
		monitor := health.NewMonitor(fleet, logger)
		for i := range c.Callers {
			callers.Go(func() { call(ctx, c, fmt.Sprint(i), monitor, calls) })
		}
		return fleet
	}
	first := start()
	for range c.Fleets - 1 {
		fleet := start()
		more.Go(func() { _ = fleet.Run(sharing) }) // returns nothing but nil
	}
	go func() { callers.Wait(); <-ctx.Done(); called() }()
	return service.RunBudget(sharing, temporal, contract.BudgetTaskQueue(c.Pipeline), first)
}

// call makes calls for one account until ctx is done, and reports on them as Sync
// does.
func call(ctx context.Context, c clientConfig, account string, monitor *health.Monitor, calls io.Writer) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for {
		permit, err := monitor.Acquire(ctx)
		if err != nil {
			return
		}
		if permit.Start() != nil {
			continue
		}
		started := time.Now()
		var once sync.Once
		sent := func() {
			once.Do(func() {
				fmt.Fprintf(calls, "%d %d\n", started.UnixNano(), time.Now().UnixNano())
				permit.Sent()
			})
		}
		traced := httptrace.WithClientTrace(context.WithoutCancel(ctx), &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { sent() },
		})
		attempt := contract.FailedAttempt{Class: contract.ClassTransient, Reason: "no answer"}
		ok := false
		request, err := http.NewRequestWithContext(traced, http.MethodGet, c.URL, nil)
		if err != nil {
			panic(err) // a URL that the test made
		}
		if response, err := transport.RoundTrip(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			attempt.Reason = response.Status
			switch response.StatusCode {
			case http.StatusOK:
				ok = true
			case http.StatusUnauthorized:
				attempt.Class = contract.ClassDenied
			case http.StatusServiceUnavailable:
				attempt.Class = contract.ClassThrottled
				permit.Throttled(0)
			}
		}
		sent()
		if ok {
			monitor.Succeeded(account, started) // one machine: its clock is Temporal's
		} else {
			attempt.At = time.Now()
			monitor.Failed(account, attempt)
		}
	}
}
