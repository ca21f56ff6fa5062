package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// Version is the version that is reported, BuildID the build it came from;
// release builds stamp both with -ldflags "-X".
var (
	Version = "dev"
	BuildID = "none"
)

// Common are the settings of both processes.
type Common struct {
	Pipeline      string        `env:"PIPELINE" help:"Name of this pipeline, [a-z0-9-]{1,40}; required. It is part of every workflow ID and the default for task queue, consumer group and tags."`
	TaskQueue     string        `env:"TEMPORAL_TASK_QUEUE" help:"Temporal task queue; the pipeline's name if empty."`
	StatusAddr    string        `env:"STATUS_ADDR" help:"Address of /status, /livez and /readyz; none for none."`
	StartTimeout  time.Duration `env:"START_TIMEOUT" help:"How long to wait at start for what the process depends on."`
	ShutdownGrace time.Duration `env:"SHUTDOWN_GRACE" help:"How long an orderly stop may take before it is cut short."`
	Log           telemetry.LogConfig
}

// DefaultCommon returns the defaults; statusAddr differs between the processes.
func DefaultCommon(statusAddr string) Common {
	return Common{
		StatusAddr: statusAddr, StartTimeout: 30 * time.Second, ShutdownGrace: 25 * time.Second,
		Log: telemetry.DefaultLogConfig(),
	}
}

var pipelineName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Validate returns every fault, joined.
func (c Common) Validate() error {
	var faults []error
	switch {
	case c.Pipeline == "":
		faults = append(faults, config.Fault{Name: "PIPELINE", Problem: "is required: a name for this pipeline, such as accounts"})
	case !pipelineName.MatchString(c.Pipeline):
		faults = append(faults, config.Fault{Name: "PIPELINE", Value: c.Pipeline, Problem: "must be 1 to 40 of a-z, 0-9 and -"})
	}
	if c.StartTimeout <= 0 {
		faults = append(faults, config.Fault{Name: "START_TIMEOUT", Value: c.StartTimeout.String(), Problem: "must be positive"})
	}
	if c.ShutdownGrace <= 0 {
		faults = append(faults, config.Fault{Name: "SHUTDOWN_GRACE", Value: c.ShutdownGrace.String(), Problem: "must be positive"})
	}
	return errors.Join(append(faults, c.Log.Validate())...)
}

// Queue returns the task queue that is in force.
func (c Common) Queue() string {
	if c.TaskQueue != "" {
		return c.TaskQueue
	}
	return c.Pipeline
}

// DialTemporal connects to the Temporal that the standard TEMPORAL_* variables
// name, trying until ctx is done, and returns the options that are in force with
// the client. Requests pass the interceptors.
func DialTemporal(ctx context.Context, logger *slog.Logger, metrics telemetry.Metrics, interceptors ...grpc.UnaryClientInterceptor) (client.Client, client.Options, error) {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, options, UsageError{fmt.Errorf("TEMPORAL_* variables: %w", err)}
	}
	if options.HostPort == "" {
		options.HostPort = client.DefaultHostPort
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	if options.DataConverter == nil {
		options.DataConverter = converter.GetDefaultDataConverter()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	options.Identity = fmt.Sprintf("%d@%s", os.Getpid(), host)
	options.Logger = log.NewStructuredLogger(logger)
	options.MetricsHandler = telemetry.Temporal(metrics)
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(interceptors...))
	var why error // the latest but for that time is up, the least of reasons
	for {
		c, err := client.DialContext(ctx, options)
		if err == nil {
			_, err = c.CheckHealth(ctx, &client.CheckHealthRequest{})
			if err == nil {
				err = checkNamespace(ctx, c, options)
			}
			if err == nil {
				return c, options, nil
			}
			c.Close()
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		logger.Warn("waiting for Temporal", "address", options.HostPort, "error", err)
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, options, Unreached(options.HostPort, options.Namespace, why)
		case <-timer.C:
		}
	}
}

// WithTemporal calls f with a connection to Temporal, dialled within
// START_TIMEOUT, and closes it. It is for commands whose output is their result:
// of what is logged, only errors are shown.
func (c Common) WithTemporal(ctx context.Context, f func(client.Client, client.Options) error) error {
	dialing, cancel := context.WithTimeout(ctx, c.StartTimeout)
	defer cancel()
	c.Log.Level = "error"
	temporal, options, err := DialTemporal(dialing, c.Log.Logger(os.Stderr), telemetry.Discard)
	if err != nil {
		return err
	}
	defer temporal.Close()
	return f(temporal, options)
}

// Unreached says why Temporal could not be used, and what to change.
func Unreached(address, namespace string, err error) error {
	missing, denied := (*noNamespaceError)(nil), (*serviceerror.PermissionDenied)(nil)
	switch {
	case errors.As(err, &missing):
		return err
	case errors.As(err, &denied), status.Code(errors.Unwrap(err)) == codes.Unauthenticated:
		return fmt.Errorf("refused by Temporal at TEMPORAL_ADDRESS=%s, TEMPORAL_NAMESPACE=%s: check TEMPORAL_API_KEY or TEMPORAL_TLS_*, and what they may do there: %w",
			address, namespace, err)
	}
	return fmt.Errorf("no answer from Temporal at TEMPORAL_ADDRESS=%s: start it, or name another: %w", address, err)
}

// noNamespaceError says that Temporal answers and does not know the namespace.
type noNamespaceError struct{ namespace, address string }

func (e *noNamespaceError) Error() string {
	return fmt.Sprintf("TEMPORAL_NAMESPACE=%s: there is no such namespace at TEMPORAL_ADDRESS=%s; create it with `temporal operator namespace create --namespace %[1]s`, or name another",
		e.namespace, e.address)
}

// checkNamespace fails only where the namespace is certainly missing: whoever may
// work in one need not be allowed to describe it.
func checkNamespace(ctx context.Context, c client.Client, options client.Options) error {
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: options.Namespace})
	if missing := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &missing) {
		return &noNamespaceError{namespace: options.Namespace, address: options.HostPort}
	}
	return nil
}
