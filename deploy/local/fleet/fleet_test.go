package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/stacktest"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// world is the Temporal server that all tests share, set by TestMain.
var world struct {
	*stack.Stack
	temporal client.Client
}

func TestMain(m *testing.M) {
	if text := os.Getenv(clientVariable); text != "" {
		if err := runClient(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	without := []stack.Part{stack.PartKafka, stack.PartSpanner, stack.PartUpstream}
	stacktest.Main(m, stack.Options{Without: without}, func(ctx context.Context, s *stack.Stack) (release func(), err error) {
		world.Stack = s
		if world.temporal, err = stacktest.Dial(ctx, s); err != nil {
			return nil, err
		}
		return world.temporal.Close, nil
	})
}

// fleet is client processes and the upstream they call.
type fleet struct {
	t        *testing.T
	pipeline string
	rps      int
	dir      string
	url      string
	budget   budget.Temporal

	machine   *machine
	status    atomic.Int32 // what upstream answers; 0: 200
	half      atomic.Bool  // to half of the calls, as chance has it
	expired   atomic.Bool  // 401 to calls below /alone
	processes []*stack.Process
	clients   int // in all processes
	busy      int // of the clients

	mu      sync.Mutex
	arrived []int64 // ns since 1970
	noted   bool    // by the kernel
}

// newFleet returns a fleet without processes. Its budget has been running for a
// TTL, unless it is to be fresh.
func newFleet(t *testing.T, rps int, fresh bool) *fleet {
	t.Helper()
	f := &fleet{t: t, rps: rps, dir: t.TempDir(), pipeline: fmt.Sprintf("fleet-%d-%d", rps, time.Now().UnixNano())}
	f.budget = budget.Temporal{Client: world.temporal, Pipeline: f.pipeline, TaskQueue: f.pipeline}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now, noted := upstream.Arrived(r)
		if !noted {
			now = time.Now()
		}
		f.mu.Lock()
		f.arrived, f.noted = append(f.arrived, now.UnixNano()), noted
		f.mu.Unlock()
		if status := f.status.Load(); status != 0 && !(f.half.Load() && rand.N(2) == 0) {
			w.WriteHeader(int(status))
		} else if r.URL.Path == "/alone" && f.expired.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})}
	go upstream.Serve(server, listener) //nolint:errcheck // it ends by Close
	t.Cleanup(func() {
		for _, p := range f.processes {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				output, _ := p.Output()
				t.Logf("%s:\n%s", p.Name, stack.Tail(output))
			}
		}
		server.Close()
		f.machine.stop()
	})
	f.machine = watchMachine()
	f.url = "http://" + listener.Addr().String()
	if !fresh {
		_, err := world.temporal.ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{
			ID: contract.BudgetWorkflowID(f.pipeline), TaskQueue: contract.BudgetTaskQueue(f.pipeline), WorkflowTaskTimeout: 2 * time.Second,
		}, contract.Budget, contract.BudgetInput{State: allot.New(time.Now().Add(-contract.ShareTTL))})
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// start starts a client process with so many callers.
func (f *fleet) start(callers int) *stack.Process {
	f.t.Helper()
	return f.startMany(1, callers)
}

// startMany starts a process that is several clients.
func (f *fleet) startMany(clients, callers int) *stack.Process {
	f.t.Helper()
	name := fmt.Sprintf("%s-%d", f.pipeline, len(f.processes))
	config, err := json.Marshal(clientConfig{
		Temporal: world.Temporal.Address, Namespace: world.Temporal.Namespace, Pipeline: f.pipeline, RPS: f.rps,
		Fleets: clients, Callers: callers, URL: f.url, Calls: filepath.Join(f.dir, name+".calls"),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	p := &stack.Process{Name: name, Path: os.Args[0], Env: []string{clientVariable + "=" + string(config)}, LogFile: filepath.Join(world.LogDir, name+".log")}
	if err := p.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.processes = append(f.processes, p)
	f.clients += clients
	if callers > 0 {
		f.busy += clients
	}
	return p
}

// calls returns when calls started and were sent, of all processes or of one.
func (f *fleet) calls(of ...*stack.Process) (started, sent []int64) {
	f.t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "*.calls"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, p := range of {
		files = []string{filepath.Join(f.dir, p.Name+".calls")}
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			f.t.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var a, b int64
			if _, err := fmt.Sscan(lines.Text(), &a, &b); err != nil {
				continue // the last line of a process that was killed
			}
			started, sent = append(started, a), append(sent, b)
		}
		file.Close()
	}
	return started, sent
}

// most returns the greatest number of instants in any half-open interval of that
// length.
func most(instants []int64, length time.Duration) int {
	sorted := slices.Sorted(slices.Values(instants))
	n, first := 0, 0
	for i := range sorted {
		for sorted[i]-sorted[first] >= int64(length) {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// between counts the instants from one time to another.
func between(instants []int64, from, to time.Time) (n int) {
	for _, i := range instants {
		if i >= from.UnixNano() && i < to.UnixNano() {
			n++
		}
	}
	return n
}

// neverOver checks the promise over everything that was ever sent. The senders'
// clocks count without slack, upstream gets 20 ms. Where the kernel notes no
// arrivals, it also gets as much as this machine stalled at worst: what arrives in
// a stall is seen all at once.
func (f *fleet) neverOver() {
	f.t.Helper()
	started, sent := f.calls()
	_, stall := f.machine.late()
	f.mu.Lock()
	defer f.mu.Unlock()
	slack := 20 * time.Millisecond
	if !f.noted {
		slack += stall
	}
	a, b := most(started, time.Second), most(sent, time.Second)
	c, d := most(f.arrived, time.Second), most(f.arrived, time.Second-slack)
	report(f.t, "budget %d: most calls in a second: %d started, %d sent, %d arrived, %d with %s of slack; this machine's worst stall: %s",
		f.rps, a, b, c, d, slack.Round(time.Millisecond), stall.Round(time.Millisecond))
	if max(a, b, d) > f.rps {
		f.t.Errorf("over the budget of %d", f.rps)
	}
}

// used checks that from one time to another the budget was used. The first and
// the last call bound the time, because a small budget has few of them. A machine
// that is busy with something else is not held to 95%.
func (f *fleet) used(what string, from, to time.Time) {
	f.t.Helper()
	started, _ := f.calls()
	started = slices.DeleteFunc(started, func(i int64) bool { return i < from.UnixNano() || i >= to.UnixNano() })
	if len(started) < 2 {
		f.t.Errorf("%s: %d calls", what, len(started))
		return
	}
	part := float64(len(started)-1) / (float64(f.rps) * time.Duration(slices.Max(started)-slices.Min(started)).Seconds())
	late, _ := f.machine.late()
	report(f.t, "budget %d: %s: %.1f%% used in %s; this machine's timers are %s late on average",
		f.rps, what, 100*part, to.Sub(from).Round(time.Second), late.Round(100*time.Microsecond))
	least := 0.95
	if late > time.Millisecond {
		least = 0.8
	}
	if part < least {
		f.t.Errorf("%s: %.1f%% of the budget used, want %.0f%%", what, 100*part, 100*least)
	}
}

func report(t *testing.T, format string, arguments ...any) {
	t.Helper()
	t.Logf(format, arguments...)
	if name := os.Getenv("FLEET_REPORT"); name != "" {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fmt.Fprintf(file, format+"\n", arguments...)
	}
}

// flowing waits until shares are where they belong: all of the budget, in equal
// parts, with those who call. While they move, some of the budget lies idle for a
// second, so that nothing is spent twice.
func (f *fleet) flowing() {
	f.t.Helper()
	f.await(40*time.Second, func() bool {
		status, err := f.budget.Status(context.Background())
		if err != nil || len(status.Workers) != f.clients || status.Leased != f.rps {
			return false
		}
		shares := []int{}
		sum := 0
		for _, w := range status.Workers {
			if w.Demand > 0 {
				shares = append(shares, w.Granted)
			}
			sum += w.Granted
		}
		return len(shares) == f.busy && sum == f.rps && slices.Max(shares)-slices.Min(shares) <= 1
	}, "shares sum to the budget")
}

func (f *fleet) await(limit time.Duration, condition func() bool, what string) {
	f.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			status, err := f.budget.Status(context.Background())
			f.t.Fatalf("not within %s: %s; budget: %+v, %v", limit, what, status, err)
		}
	}
}

func measure() time.Duration {
	if seconds, err := strconv.Atoi(os.Getenv("FLEET_SECONDS")); err == nil {
		return time.Duration(seconds) * time.Second
	}
	return 10 * time.Second
}

// TestSaturated: three processes that never have enough.
func TestSaturated(t *testing.T) {
	for _, rps := range []int{1, 10, 1000} {
		t.Run(fmt.Sprint(rps), func(t *testing.T) {
			f := newFleet(t, rps, false)
			for range 3 {
				f.start(min(2*rps, 60))
			}
			f.flowing()
			begin := time.Now()
			time.Sleep(measure())
			f.used("saturated", begin, time.Now())
			f.neverOver()
		})
	}
}

// TestManyClients: FLEET_CLIENTS of them, in five processes.
func TestManyClients(t *testing.T) {
	clients, err := strconv.Atoi(os.Getenv("FLEET_CLIENTS"))
	if err != nil {
		t.Skip("FLEET_CLIENTS is not set")
	}
	f := newFleet(t, 500, false)
	for range 5 {
		f.startMany(clients/5, 15)
	}
	// Somebody is always a second late or early among so many: their shares are
	// never quite at rest.
	f.await(60*time.Second, func() bool {
		status, err := f.budget.Status(context.Background())
		return err == nil && len(status.Workers) == f.clients && status.Leased >= f.rps*98/100
	}, "shares are out")
	begin := time.Now()
	time.Sleep(measure())
	f.used(fmt.Sprintf("%d clients, saturated", f.clients), begin, time.Now())
	f.neverOver()
}

// TestOutage: upstream goes out for everybody, and comes back.
// FLEET_OUTAGE=90 makes it last as many seconds.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusUnauthorized} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			lasts, most := 20*time.Second, 7
			if seconds, err := strconv.Atoi(os.Getenv("FLEET_OUTAGE")); err == nil {
				lasts, most = time.Duration(seconds)*time.Second, seconds/5
			}
			f := newFleet(t, 20, false)
			for range 3 {
				f.start(40)
			}
			f.flowing()
			f.status.Store(int32(status))
			end := time.Now().Add(lasts)
			var opened time.Time
			f.await(15*time.Second, func() bool {
				status, err := f.budget.Status(context.Background())
				opened = status.Breaker.Since
				return err == nil && status.Breaker.Open
			}, "the breaker opens")
			time.Sleep(time.Until(end))
			f.status.Store(0)
			end = time.Now()
			started, _ := f.calls()
			n := between(started, opened, end)
			report(t, "budget 20, %d for %s: %d calls after the breaker opened", status, lasts, n)
			if n > most {
				t.Errorf("%d calls after the breaker opened, want at most %d", n, most)
			}
			time.Sleep(5*time.Second + measure())
			f.used("from 5 s after the outage on", end.Add(5*time.Second), end.Add(5*time.Second+measure()))
			f.neverOver()
		})
	}
}

// TestPartialOutage: half of the calls fail. The first rows may open the breaker,
// until a success has told that they are chance.
func TestPartialOutage(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusUnauthorized} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 20, false)
			for range 3 {
				f.start(40)
			}
			f.flowing()
			f.half.Store(true)
			f.status.Store(int32(status))
			time.Sleep(5 * time.Second)
			f.flowing()
			begin := time.Now()
			time.Sleep(measure())
			f.used(fmt.Sprintf("half of the calls answered with %d", status), begin, time.Now())
			f.neverOver()
		})
	}
}

// TestOneWorkersTrouble: one process of three gets 401, for a token of its own that
// has expired, say. The others go on at the full budget, and it joins them again.
func TestOneWorkersTrouble(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 40, false) // of which one is kept for the worker's probes
	f.start(40)
	f.start(40)
	all := f.url
	f.url += "/alone"
	f.start(40)
	f.url = all
	f.flowing()
	out := func() (for1, forAll bool) {
		status, err := f.budget.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range status.Workers {
			for1 = for1 || w.Out != nil
		}
		return for1, status.Breaker.Open
	}
	f.expired.Store(true)
	f.await(15*time.Second, func() bool { for1, forAll := out(); return for1 && !forAll }, "upstream is out for one worker alone")
	time.Sleep(5 * time.Second) // the others take over its share
	begin := time.Now()
	time.Sleep(measure())
	f.used("one worker of three alone has trouble", begin, time.Now())
	if _, forAll := out(); forAll {
		t.Error("upstream is out for all")
	}
	f.expired.Store(false)
	f.await(20*time.Second, func() bool { for1, forAll := out(); return !for1 && !forAll }, "the worker is back")
	f.neverOver()
}

// TestKilled: one of two processes is killed; its share is back within a TTL.
// Then one that was idle among busy ones is the only one left.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, false)
	survivor, victim := f.start(20), f.start(20)
	f.start(0)
	f.flowing()
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	back := time.Now().Add(contract.ShareTTL)
	time.Sleep(time.Until(back) + 5*time.Second)
	f.used("after a TTL without the killed one, beside an idle one", back, back.Add(5*time.Second))
	if started, _ := f.calls(survivor); between(started, back, back.Add(5*time.Second)) < 45 {
		t.Error("the survivor does not have all of it")
	}
	f.neverOver()
}

// TestForgotten: a budget starts, its run is terminated, and the one after it is
// reset by hand, while the same workers go on; a budget that has no memory, or has
// lost it, grants nothing for a TTL, and never is more called than the budget.
func TestForgotten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFleet(t, 10, true)
	began := time.Now()
	f.start(20)
	f.start(20)
	f.flowing()
	if started, _ := f.calls(); slices.Min(append(started, time.Now().UnixNano())) < began.Add(contract.ShareTTL).UnixNano() {
		t.Error("a fresh budget granted before its TTL had passed")
	}
	id := contract.BudgetWorkflowID(f.pipeline)

	first, err := world.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := world.temporal.TerminateWorkflow(ctx, id, "", "test"); err != nil {
		t.Fatal(err)
	}
	record(t, "budget", first.WorkflowExecutionInfo.Execution)
	terminated := time.Now()
	f.await(10*time.Second, func() bool {
		status, err := f.budget.Status(ctx)
		return err == nil && status.WaitsUntil.After(terminated)
	}, "another run has been started and waits")
	f.flowing()

	before, err := world.temporal.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		t.Fatal(err)
	}
	run := before.WorkflowExecutionInfo.Execution.RunId
	_, err = world.temporal.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: world.Temporal.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run},
		Reason: "test", RequestId: "reset-" + f.pipeline, WorkflowTaskFinishEventId: firstTask(t, id, run),
	})
	if err != nil {
		t.Fatal(err)
	}
	reset := time.Now()
	f.await(10*time.Second, func() bool {
		status, err := f.budget.Status(ctx)
		return err == nil && status.WaitsUntil.After(reset.Add(contract.ShareTTL-5*time.Second))
	}, "the reset run has continued as a fresh one")
	f.flowing()
	if started, _ := f.calls(); between(started, reset.Add(contract.ShareUse), reset.Add(contract.ShareTTL)) != 0 {
		t.Error("calls between the end of forgotten shares and the end of the wait")
	}
	f.neverOver()
}

// record writes a run's history for the replay tests of package workflows, if
// FLEET_RECORD names their directory.
func record(t *testing.T, name string, run *commonpb.WorkflowExecution) {
	t.Helper()
	dir := os.Getenv("FLEET_RECORD")
	if dir == "" {
		return
	}
	history := new(historypb.History)
	for events := world.temporal.GetWorkflowHistory(context.Background(), run.WorkflowId, run.RunId, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		history.Events = append(history.Events, event)
	}
	text, err := protojson.MarshalOptions{Indent: " "}.Marshal(history)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// firstTask returns the ID of the event that completed the run's first workflow
// task.
func firstTask(t *testing.T, id, run string) int64 {
	t.Helper()
	for events := world.temporal.GetWorkflowHistory(context.Background(), id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if event.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			return event.EventId
		}
	}
	t.Fatal("no workflow task was completed")
	return 0
}

// TestSet: an operator lowers, pauses and raises the budget.
func TestSet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFleet(t, 20, false)
	f.start(40)
	f.start(40)
	f.flowing()
	set := func(rps int) time.Time {
		if _, err := f.budget.Set(ctx, rps); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	lowered := set(5)
	time.Sleep(contract.ShareTTL)
	raised := set(20)
	started, _ := f.calls()
	started = slices.DeleteFunc(started, func(i int64) bool { return i < lowered.Add(contract.ShareTTL-3*time.Second).UnixNano() })
	if n := most(started, time.Second); n != 5 {
		t.Errorf("%d calls a second, a TTL after it was set to 5", n)
	}
	time.Sleep(contract.ShareTTL)
	f.used("after it was raised again", raised.Add(10*time.Second), raised.Add(contract.ShareTTL))
	paused := set(0)
	time.Sleep(contract.ShareTTL)
	if started, _ := f.calls(); between(started, paused.Add(10*time.Second), paused.Add(contract.ShareTTL)) != 0 {
		t.Error("calls although the budget is 0")
	}
	f.neverOver()
}
