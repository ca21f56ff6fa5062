package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// namespace is the one that an embedded Temporal server gets.
const namespace = "default"

// stopTimeout bounds how long a child may take to end before it is killed.
const stopTimeout = 20 * time.Second

// Part is a part of the stack.
type Part string

// The parts, in the order in which they start.
const (
	PartTemporal Part = "temporal"
	PartKafka    Part = "kafka"
	PartSpanner  Part = "spanner"
	PartUpstream Part = "upstream"
)

// Options of a stack. A port of 0 chooses a free one.
type Options struct {
	// Root is the repository's root; empty: found from the current directory.
	Root string
	// LogDir takes the logs of child processes; empty: a new directory below
	// .cache/logs of the root.
	LogDir string
	// Progress is told what takes long, in words; nil: nobody.
	Progress io.Writer

	// Without leaves parts out, for tests that need less.
	Without []Part

	TemporalPort, UIPort, KafkaPort, SpannerPort, UpstreamPort int

	// TemporalDynamicConfig are KEY=VALUE settings of an embedded server.
	TemporalDynamicConfig []string
	// Topic is created with Partitions partitions, DeadLetterTopic with one.
	// Empty and 0: account-changes, 8, account-changes-dead-letters.
	Topic, DeadLetterTopic string
	Partitions             int32
	// Database is the ID of the database to create; empty: accounts.
	Database string
	// Upstream configures the simulator.
	Upstream upstream.Config
}

// withDefaults fills in what is empty.
func (o Options) withDefaults() (Options, error) {
	var err error
	if o.Root == "" {
		if o.Root, err = Root(); err != nil {
			return o, err
		}
	}
	if o.LogDir == "" {
		base := filepath.Join(o.Root, ".cache", "logs")
		if err := os.MkdirAll(base, 0o755); err != nil {
			return o, fmt.Errorf("log directory: %w", err)
		}
		if o.LogDir, err = os.MkdirTemp(base, time.Now().Format("20060102-150405-")); err != nil {
			return o, fmt.Errorf("log directory: %w", err)
		}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Topic == "" {
		o.Topic = "account-changes"
	}
	if o.DeadLetterTopic == "" {
		o.DeadLetterTopic = "account-changes-dead-letters"
	}
	if o.Partitions == 0 {
		o.Partitions = 8
	}
	if o.Database == "" {
		o.Database = "accounts"
	}
	return o, nil
}

// Stack is everything around the bridge and the worker, running.
type Stack struct {
	// Root is the repository's root, LogDir where child processes log.
	Root, LogDir string

	Temporal Temporal
	Kafka    Kafka
	Spanner  Spanner
	// Upstream is the simulator, UpstreamURL its address with the {account}
	// placeholder.
	Upstream    *upstream.Simulator
	UpstreamURL string

	topic, deadLetterTopic string
	failed                 chan error // capacity 1: the first child to end is the cause

	mu      sync.Mutex
	stops   []func() error // in the order of starting; run backwards
	stopped bool
	wg      sync.WaitGroup
}

// Start starts all parts and waits until each answers; every wait is bounded.
// Whatever was started before a part failed is stopped again.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Stack{
		Root: opts.Root, LogDir: opts.LogDir,
		topic: opts.Topic, deadLetterTopic: opts.DeadLetterTopic,
		failed: make(chan error, 1),
	}
	for _, part := range []struct {
		name  Part
		start func(context.Context, Options) error
	}{
		{PartTemporal, s.startTemporal}, {PartKafka, s.startKafka}, {PartSpanner, s.startSpanner}, {PartUpstream, s.startUpstream},
	} {
		if slices.Contains(opts.Without, part.name) {
			continue
		}
		if err := part.start(ctx, opts); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

// Stop stops what was started, last first, and waits for it. Further calls do
// nothing.
func (s *Stack) Stop() error {
	s.mu.Lock()
	stops := s.stops
	s.stops, s.stopped = nil, true
	s.mu.Unlock()
	var errs []error
	for _, stop := range slices.Backward(stops) {
		errs = append(errs, stop())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// Failed delivers the error of the first part that ended while it should not.
func (s *Stack) Failed() <-chan error { return s.failed }

// Topic is the topic of changes that was created.
func (s *Stack) Topic() string { return s.topic }

// DeadLetterTopic is where records go that no account can be derived from.
func (s *Stack) DeadLetterTopic() string { return s.deadLetterTopic }

// Env returns what bridge and worker need to find the stack, as KEY=VALUE; what
// was left out is empty. The pipeline's own settings are the caller's.
func (s *Stack) Env() []string {
	return []string{
		"TEMPORAL_ADDRESS=" + s.Temporal.Address,
		"TEMPORAL_NAMESPACE=" + s.Temporal.Namespace,
		"KAFKA_BROKERS=" + strings.Join(s.Kafka.Brokers, ","),
		"KAFKA_TOPICS=" + s.topic,
		"DEAD_LETTER_TOPIC=" + s.deadLetterTopic,
		"SPANNER_EMULATOR_HOST=" + s.Spanner.EmulatorHost,
		"SPANNER_DATABASE=" + s.Spanner.Database,
		"UPSTREAM_URL=" + s.UpstreamURL,
	}
}

// startUpstream serves the simulator in this process.
func (s *Stack) startUpstream(_ context.Context, opts Options) error {
	simulator, url, err := s.ServeUpstream(opts.UpstreamPort, opts.Upstream)
	s.Upstream, s.UpstreamURL = simulator, url
	return err
}

// ServeUpstream serves one more simulator until the stack stops, for a test
// that wants its own, and returns it with the value for UPSTREAM_URL.
func (s *Stack) ServeUpstream(port int, cfg upstream.Config) (*upstream.Simulator, string, error) {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return nil, "", fmt.Errorf("upstream simulator: %w", err)
	}
	simulator := upstream.New(cfg)
	server := &http.Server{Handler: simulator, ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() {
		if err := upstream.Serve(server, listener); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("upstream simulator: %w", err))
		}
	})
	s.onStop(server.Close)
	return simulator, "http://" + listener.Addr().String() + upstream.PathPrefix + "{account}", nil
}

// Binary builds the root module's command in dir and returns a process for it
// that has the stack's environment and then env. Its log file is named after
// name, which must be unique within the stack.
func (s *Stack) Binary(ctx context.Context, name, dir string, args, env []string, buildFlags ...string) (*Process, error) {
	path, err := BuildBinary(ctx, s.Root, dir, buildFlags...)
	if err != nil {
		return nil, err
	}
	return &Process{
		Name: name, Path: path, Args: args, Env: append(s.Env(), env...),
		LogFile: filepath.Join(s.LogDir, name+".log"),
	}, nil
}

// startChild starts a part as a child process and reports when it ends before
// the stack stops.
func (s *Stack) startChild(p *Process) error {
	if err := p.Start(); err != nil {
		return err
	}
	s.wg.Go(func() {
		<-p.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stopped {
			s.fail(fmt.Errorf("%s ended (exit code %d); its log is %s", p.Name, p.ExitCode(), p.LogFile))
		}
	})
	s.onStop(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		// How it ends when told to is its own affair; only that it ends counts.
		p.Terminate(ctx) //nolint:errcheck
		return p.Kill()
	})
	return nil
}

func (s *Stack) fail(err error) {
	select {
	case s.failed <- err:
	default: // somebody was first
	}
}

func (s *Stack) onStop(stop func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

// AwaitHTTP waits until a GET of url is answered with 200, ctx ends, or the
// process that should answer has ended.
func (s *Stack) AwaitHTTP(ctx context.Context, p *Process, url string) error {
	return s.await(ctx, p, url, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 500))
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return nil
	})
}

// await repeats try until it succeeds, ctx ends, or the process that should
// answer has ended. A nil process is somebody else's.
func (s *Stack) await(ctx context.Context, p *Process, what string, try func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var ended <-chan struct{}
	if p != nil {
		ended = p.Done()
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := try(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			output, _ := p.Output()
			return fmt.Errorf("%s: %s ended (exit code %d):\n%s", what, p.Name, p.ExitCode(), Tail(output))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %w)", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// choosePort returns port, or a free one for 0. A port that somebody listens on
// is an error: whoever it is would be taken for the part that cannot start.
func choosePort(port int) (int, error) {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return 0, fmt.Errorf("%w (0 chooses a free port)", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// FreePort returns a port that nobody listens on at the moment.
func FreePort() (int, error) {
	port, err := choosePort(0)
	if err != nil {
		return 0, fmt.Errorf("choose a free port: %w", err)
	}
	return port, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
