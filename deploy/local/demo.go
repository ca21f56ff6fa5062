package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// terminateTimeout bounds the orderly stop of bridge and worker, both together.
const terminateTimeout = 60 * time.Second

// budgetTimeout bounds the wait for the budget's first grant.
const budgetTimeout = 60 * time.Second

const demoHelp = `Run the real bridge and worker against a simulated system of record under traffic,
show what happens, and judge the result: exit status 1 if a promise was broken.
Temporal, Kafka and Spanner are embedded; TEMPORAL_ADDRESS, KAFKA_BROKERS and
SPANNER_EMULATOR_HOST take others instead.

On a terminal it offers keys while it runs:
  w  kill -9 the worker and start it again     b  the same for the bridge
  o  upstream answers 503 for 10 s             h  a hot account, on and off
  q  stop making changes, drain, sum up        (Ctrl-C too; twice: at once)
It says what each will do, and in figures what it did.

Examples, from the repository's root:
  make demo
  make demo ARGS="--duration 5m --hot 0.3"
  make demo ARGS="--settle-delay 6s"
  make demo ARGS="--duration 60s --keys w@10s,b@25s,o@40s --summary summary.json"

Needs Go and, for the first build of the embedded Temporal server, some minutes.`

// demoOptions are the demo's flags.
type demoOptions struct {
	pipelineOptions
	duration, drain time.Duration
	// After these a dead worker's work and a dead bridge's partitions are given
	// to others.
	heartbeat, session time.Duration
	summary            string
	keys               []pressed
}

// demoCommand runs the main job under traffic and judges it.
func demoCommand(stop stopper, args []string, stdout, _ io.Writer) error {
	// Short, so that a kill is got over while one watches.
	opts := demoOptions{heartbeat: 3 * time.Second, session: 6 * time.Second}
	keys := ""
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	opts.register(flags)
	flags.Float64Var(&opts.traffic.Rate, "rate", opts.traffic.Rate, "changes a second to make, on average")
	flags.DurationVar(&opts.duration, "duration", 60*time.Second, "how long to make changes")
	flags.DurationVar(&opts.drain, "drain-timeout", 2*time.Minute, "longest to wait afterwards until all is committed")
	flags.StringVar(&opts.summary, "summary", "", "file to write the summary to, as JSON")
	flags.StringVar(&keys, "keys", "", "keys of the above to press by themselves, as w@10s,o@25s: the time is from the first change")
	if err := parseFlags(flags, demoHelp, args, stdout); err != nil {
		return err
	}
	if err := opts.validate(); err != nil {
		return err
	}
	var err error
	if opts.keys, err = parseKeys(keys); err != nil {
		return err
	}
	if opts.summary != "" { // better now than after the run
		if err := os.WriteFile(opts.summary, nil, 0o644); err != nil {
			return fmt.Errorf("%w: demo: --summary: %w", errUsage, err)
		}
	}
	// What others share gets names of its own, so that nothing of an earlier
	// run is counted.
	pipeline, suffix := "demo", strconv.FormatInt(time.Now().UnixMilli(), 36)
	parts := stack.Options{
		Progress: stdout, Partitions: int32(opts.partitions),
		Upstream: upstream.Config{MaxLag: opts.settleTime, Seed: opts.traffic.Seed},
	}
	if os.Getenv("TEMPORAL_ADDRESS") != "" || os.Getenv("KAFKA_BROKERS") != "" {
		pipeline += "-" + suffix
	}
	if os.Getenv("KAFKA_BROKERS") != "" {
		parts.Topic = "account-changes-" + suffix
		parts.DeadLetterTopic = parts.Topic + "-dead-letters"
	}
	if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
		parts.Database = "demo-" + suffix
	}
	s, err := stack.Start(stop.soft, parts)
	if err != nil {
		return early(stop, err)
	}
	d := &demo{opts: opts, stack: s, pipeline: s.Pipeline(pipeline, append(opts.env(),
		"HEARTBEAT_TIMEOUT="+opts.heartbeat.String(), "KAFKA_SESSION_TIMEOUT="+opts.session.String())...), out: stdout}
	summary, err := d.run(stop)
	if err = errors.Join(err, s.Stop()); err != nil {
		return err
	}
	if err := report(summary, opts.summary, d.disturbed, stdout); err != nil {
		return err
	}
	fmt.Fprintln(stdout, why(d.served(), opts.window()))
	return nil
}

// early returns what to say about a start that failed with err: nothing about
// the failure if it was told to stop.
func early(stop stopper, err error) error {
	if stop.soft.Err() != nil {
		return errors.New("stopped before everything was up; there is nothing to sum up")
	}
	return err
}

// demo is one run: the stack, bridge and worker as processes, and traffic.
type demo struct {
	opts     demoOptions
	stack    *stack.Stack
	pipeline *stack.Pipeline
	out      io.Writer

	bridge, worker *stack.Process
	generator      *load.Generator
	disturbed      bool // see [incidents]
}

// run runs the demo. When it is told to stop it makes no more changes, waits
// until what was made is committed, and judges that. The bridge stops first:
// the worker may still have to finish what the bridge waits for.
func (d *demo) run(stop stopper) (check.Summary, error) {
	if err := d.start(stop.soft); err != nil {
		return check.Summary{}, errors.Join(early(stop, err), d.killAll())
	}
	printStack(d.out, d.stack)
	fmt.Fprintf(d.out, "\n%s\n", d.opening())
	err := d.traffic(stop)
	if err != nil {
		return check.Summary{}, errors.Join(err, d.killAll())
	}
	ctx, cancel := context.WithTimeout(stop.hard, terminateTimeout)
	defer cancel()
	if err := d.bridge.Terminate(ctx); err != nil {
		return check.Summary{}, errors.Join(err, d.killAll())
	}
	observed, err := d.observe(stop.hard)
	return check.Summarize(observed), errors.Join(err, d.worker.Terminate(ctx))
}

func (d *demo) killAll() error {
	var errs []error
	for _, p := range []*stack.Process{d.bridge, d.worker} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	return errors.Join(errs...)
}

// start creates the tables and starts worker and bridge.
func (d *demo) start(ctx context.Context) error {
	fmt.Fprintln(d.out, "Building bridge and worker.")
	if err := d.pipeline.Migrate(ctx); err != nil {
		return err
	}
	var err error
	if d.worker, err = d.pipeline.Run(ctx, "worker", "worker"); err != nil {
		return err
	}
	if d.bridge, err = d.pipeline.Run(ctx, "bridge", "bridge"); err != nil {
		return err
	}
	fmt.Fprintln(d.out, "Waiting for the call budget: a new one grants nothing for 15 s, for shares of one before it may still be in use.")
	return d.awaitBudget(ctx)
}

// awaitBudget waits until the budget grants calls, so that what is shown and
// measured is not its start. A worker without anything to call holds no share
// yet, but is told what the fleet may call.
func (d *demo) awaitBudget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budgetTimeout)
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		var state struct {
			Share struct {
				Limit int `json:"limit"`
			} `json:"share"`
		}
		err := readStatus(ctx, d.worker.StatusURL, &state)
		if err == nil && state.Share.Limit > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the budget grants no calls: %w", ctx.Err()), err)
		case <-ticker.C:
		}
	}
}

// traffic makes changes until the duration is over or the demo is told to stop,
// and waits until everything is committed. A part that ends before is an error.
func (d *demo) traffic(stop stopper) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(d.stack.Kafka.Brokers...))
	if err != nil {
		return fmt.Errorf("kafka client of the load generator: %w", err)
	}
	defer client.Close()
	d.generator = load.New(d.opts.traffic, d.pipeline.Upstream, client, d.pipeline.Topic)

	making, cancel := context.WithTimeout(stop.soft, d.opts.duration)
	defer cancel()
	made := make(chan error, 1)
	go func() { made <- d.generator.Run(making) }()
	view := newView(d.out)
	defer view.end()
	acts := &incidents{demo: d, note: view.note}
	defer acts.close()
	defer acts.end()
	keys, typed, restore := listenKeys(making, d.opts.keys, view.terminal)
	defer restore()
	if typed {
		view.hints = d.hints
		view.note("%s", keysHelp)
	} else {
		view.note("Ctrl-C drains and sums up.")
	}
	example := time.After(exampleAfter(d.opts))
	tick := time.NewTicker(viewInterval)
	defer tick.Stop()
	var deadline <-chan time.Time // of draining; nil while changes are made
	drained := false
	for !drained {
		var failed error
		select {
		case <-stop.hard.Done():
			failed = errors.New("stopped before everything was committed")
		case failed = <-d.stack.Failed():
		case <-d.bridge.Done():
			failed = ended(d.bridge)
		case <-d.worker.Done():
			failed = ended(d.worker)
		case key := <-keys:
			var quit bool
			if quit, failed = acts.press(stop.hard, key); quit {
				cancel()
			}
			d.disturbed = acts.disturbed
		case <-acts.outageEnd:
			acts.recover()
		case <-example:
			if text := d.example(stop.hard); text != "" {
				view.note("%s", text)
			} else {
				example = time.After(time.Second) // no burst was read yet
			}
		case err := <-made:
			acts.end()
			// What a hot account made last must be on its way too.
			flushing, flushed := context.WithTimeout(stop.hard, 10*time.Second)
			made, failed = nil, errors.Join(err, client.Flush(flushing))
			flushed()
			deadline = time.After(d.opts.drain)
		case <-deadline:
			drained = true // the summary will say what is left
		case <-tick.C:
			live, err := d.live(stop.hard)
			if err != nil {
				continue // a busy machine; what is really wrong ends the run otherwise
			}
			live.draining = made == nil
			view.show(live)
			acts.see(live)
			drained = live.draining && live.lag == 0
		}
		if failed != nil {
			cancel()
			if made != nil {
				<-made
			}
			return failed
		}
	}
	return nil
}

// exampleAfter is when the first calls have been made, and some.
func exampleAfter(o demoOptions) time.Duration { return 2*o.settleDelay + 2*time.Second }

func ended(p *stack.Process) error {
	output, _ := p.Output()
	return fmt.Errorf("%s ended (exit code %d); its log is %s:\n%s", p.Name, p.ExitCode(), p.LogFile, stack.Tail(output))
}

// report prints the summary, writes it to file unless that is empty, and
// returns an error if a promise was broken. A run that was disturbed may have
// made more calls than the fewest.
func report(s check.Summary, file string, disturbed bool, out io.Writer) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	fmt.Fprintf(out, "\n%s\n\n", text)
	if file != "" {
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			return fmt.Errorf("summary: %w", err)
		}
	}
	judged := s
	if disturbed {
		judged.OptimalCalls = max(s.OptimalCalls, s.Calls)
	}
	if err := judged.Err(); err != nil {
		return err
	}
	fmt.Fprintf(out, "Nothing lost, nothing stale, everything committed. %d calls for %d changes: %.1f%% saved.\n", s.Calls, s.Changes, 100*s.SavedRatio)
	switch extra := s.Calls - s.OptimalCalls; {
	case extra > 0:
		fmt.Fprintf(out, "The fewest possible are %d; the other %d calls were refused or cut off by what you did, and made again.\n", s.OptimalCalls, extra)
	case extra < 0 && disturbed:
		fmt.Fprintf(out, "Undisturbed they would be %d: while something was down more changes came together.\n", s.OptimalCalls)
	case extra < 0:
		fmt.Fprintf(out, "Never late they would be %d: some calls came later than the settle delay and served more changes.\n", s.OptimalCalls)
	default:
		fmt.Fprintf(out, "No schedule that reads every change in time makes fewer than %d, even knowing all changes beforehand.\n", s.OptimalCalls)
	}
	return nil
}

// bridgeState is what the demo reads of the bridge's status. What is absent
// reads as zero.
type bridgeState struct {
	Uncommitted int `json:"uncommitted"`
}

// readStatus reads the status of the bridge or the worker into state.
func readStatus(ctx context.Context, url string, state any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status at %s: %s", url, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(state); err != nil {
		return fmt.Errorf("status at %s: %w", url, err)
	}
	return nil
}
