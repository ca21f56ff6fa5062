package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

var (
	outage    = flag.Duration("outage", 0, "how long TestLongOutage lasts; 90s is what is promised; 0 skips it")
	saturated = flag.Duration("saturated", 0, "how long TestSaturated measures, such as 60s; 0 skips it")
	overload  = flag.Duration("overload", 0, "how long TestOverload makes changes, such as 3m; 0 skips it")
)

// slack is what a call's way to upstream may vary by. The simulator's times of
// arrival are the kernel's, so nothing else moves them.
const slack = 20 * time.Millisecond

func (p *pipeline) budget() budget.Temporal {
	return budget.Temporal{Client: world.temporal, Pipeline: p.name, TaskQueue: p.name}
}

// budgetStatus is what `worker budget show` reads; empty while there is none.
func (p *pipeline) budgetStatus() contract.BudgetStatus {
	status, err := p.budget().Status(p.t.Context())
	if err != nil {
		return contract.BudgetStatus{}
	}
	return status
}

// neverOver fails the test if upstream was called more than rps times in any
// second.
func (p *pipeline) neverOver(rps int) {
	p.t.Helper()
	starts := starts(p.upstream.Calls())
	slices.SortFunc(starts, time.Time.Compare)
	n, most := 0, 0
	for i, first := 0, 0; i < len(starts); i++ {
		for starts[i].Sub(starts[first]) >= time.Second-slack {
			first++
		}
		n = i - first + 1
		most = max(most, n)
	}
	p.t.Logf("budget %d: of %d calls at most %d arrived in a second, %d with %s of slack", rps, len(starts), check.MaxPerSecond(starts), most, slack)
	if most > rps {
		p.t.Errorf("%d calls in a second, budget %d", most, rps)
	}
}

func starts(calls []upstream.Call) (times []time.Time) {
	for _, c := range calls {
		times = append(times, c.Start)
	}
	return times
}

// between returns the calls that arrived from one time to another.
func (p *pipeline) between(from, to time.Time) []upstream.Call {
	return slices.DeleteFunc(p.upstream.Calls(), func(c upstream.Call) bool { return c.Start.Before(from) || !c.Start.Before(to) })
}

// bridgeBacklog is what a bridge says of its bounds.
type bridgeBacklog struct {
	Uncommitted      int `json:"uncommitted"`
	PausedPartitions int `json:"paused_partitions"`
}

func (p *pipeline) backlog(bridge *stack.Process) (b bridgeBacklog) {
	p.t.Helper()
	response, err := http.Get("http://" + p.addresses[bridge] + "/status")
	p.must(err)
	defer response.Body.Close()
	p.must(json.NewDecoder(response.Body).Decode(&b))
	return b
}

// TestLongOutage: upstream is out for everybody at a budget of 20, with three
// workers and changes coming in. At most a call per 5 s is made after the breaker
// opened, nobody parks, fetching holds back, and from 5 s after the end on the
// queue drains at the full budget, a call an account, live changes first. The
// outages do not end together: one drain is as much as an embedded server can do.
func TestLongOutage(t *testing.T) {
	if *outage == 0 {
		t.Skip("takes minutes, and two cores for itself; run with -outage 90s")
	}
	const rps, uncommitted = 20, 700
	for i, c := range []struct {
		name     string
		fault    upstream.Fault
		accounts int  // 0: another one each time
		replay   bool // is under way as well
	}{
		{name: "401", fault: upstream.Fault{Status: http.StatusUnauthorized}, replay: true},
		{name: "pages", fault: upstream.Fault{Kind: upstream.HTML}},
		{name: "503", fault: upstream.Fault{Status: http.StatusServiceUnavailable}},
		{name: "three accounts", fault: upstream.Fault{Status: http.StatusServiceUnavailable}, accounts: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, fmt.Sprintf("UPSTREAM_RPS=%d", rps), fmt.Sprintf("MAX_UNCOMMITTED=%d", uncommitted), "PARK_AFTER=2", "SYNC_SLOTS=20")
			for range 3 {
				p.start("worker")
			}
			bridge := p.start("bridge")
			p.change("before")
			p.drained()
			if c.accounts == 0 {
				time.Sleep(time.Duration(i) * 55 * time.Second)
			}

			heal := p.upstream.Inject("", c.fault)
			began := time.Now()
			end := began.Add(*outage)
			if c.replay {
				list := make([]string, 300)
				for i := range list {
					list[i] = fmt.Sprintf("replayed-%d", i)
					p.upstream.Change(list[i])
				}
				if out, code := p.command("bridge", "replay", "--accounts", strings.Join(list, ","), "--reason", "test", "--detach"); code != 0 {
					t.Fatalf("replay: exit code %d\n%s", code, out)
				}
			}
			n := 0
			for tick := time.NewTicker(time.Second / 14); time.Now().Before(end); <-tick.C {
				account := n
				if c.accounts > 0 {
					account %= c.accounts
				}
				p.load.Change(t.Context(), fmt.Sprintf("account-%d", account))
				n++
			}
			breaker := p.budgetStatus().Breaker
			held := p.backlog(bridge)
			heal()
			end = time.Now()
			if !breaker.Open {
				t.Fatal("the breaker is not open at the end of the outage")
			}
			before, after := len(p.between(began, breaker.Since)), len(p.between(breaker.Since, end))
			t.Logf("%d changes; %d calls in %s before the breaker opened (%s), %d after; %d changes uncommitted, %d partitions paused",
				n, before, breaker.Since.Sub(began).Round(time.Millisecond), breaker.Cause, after, held.Uncommitted, held.PausedPartitions)
			if limit := int(*outage / (5 * time.Second)); after > limit {
				t.Errorf("%d calls after the breaker opened, want at most %d", after, limit)
			}
			if held.Uncommitted > uncommitted || (*outage > uncommitted/14*time.Second && held.PausedPartitions == 0) {
				t.Errorf("fetching does not hold back: %+v", held)
			}

			if c.accounts == 0 {
				from := end.Add(5 * time.Second)
				time.Sleep(time.Until(from.Add(30 * time.Second)))
				calls := p.between(from, from.Add(30*time.Second))
				replayed := 0
				for _, call := range calls {
					if strings.HasPrefix(call.Account, "replayed") {
						replayed++
					}
				}
				used := float64(len(calls)) / (30 * rps)
				t.Logf("from 5 s after the end on: %d calls in 30 s, %.1f%% of the budget, %d of them for the replay", len(calls), 100*used, replayed)
				if used < 0.95 {
					t.Errorf("%.1f%% of the budget used", 100*used)
				}
				if replayed > len(calls)/10 {
					t.Errorf("%d calls for the replay while live changes waited", replayed)
				}
			}
			p.drained()
			if parked := p.parked(); len(parked) > 0 {
				t.Errorf("parked: %v", parked)
			}
			p.neverOver(rps)
			if c.replay { // its calls are none that changes ask for
				rows, err := check.ReadRows(t.Context(), p.spanner)
				p.must(err)
				if len(rows) < n {
					t.Errorf("%d rows of %d accounts", len(rows), n)
				}
				return
			}
			p.verdict()
		})
	}
}

// TestSaturated: whole workers that always have something to call.
func TestSaturated(t *testing.T) {
	if *saturated == 0 {
		t.Skip("takes two cores for itself; run with -saturated 60s")
	}
	const rps = 15
	p := newPipeline(t, fmt.Sprintf("UPSTREAM_RPS=%d", rps), "MAX_UNCOMMITTED=5000", "SYNC_SLOTS=20")
	for range 3 {
		p.start("worker")
	}
	bridge := p.start("bridge")
	n := rps * int((*saturated + 25*time.Second).Seconds())
	accounts := make([]string, n)
	for i := range accounts {
		accounts[i] = fmt.Sprintf("account-%d", i)
	}
	p.change(accounts...)
	p.await("shares sum to the budget", func() bool {
		status := p.budgetStatus()
		shares := 0
		for _, w := range status.Workers {
			shares += w.Granted
		}
		return shares == rps && len(status.Workers) == 3 && p.backlog(bridge).Uncommitted > 0
	})
	from := time.Now().Add(12 * time.Second) // until then starting the runs takes much of a small machine
	time.Sleep(time.Until(from.Add(*saturated)))
	calls := p.between(from, from.Add(*saturated))
	used := float64(len(calls)) / (rps * saturated.Seconds())
	if used < 0.95 {
		t.Errorf("%.1f%% of the budget used", 100*used)
	}
	p.drained()
	p.neverOver(rps)
	v := p.verdict()
	var senders []time.Time
	for _, s := range v.syncs {
		senders = append(senders, s.CalledAt)
	}
	t.Logf("%d calls in %s, %.1f%% of the budget; by the sync log at most %d in a second (its times are in Temporal's clock, early by what the attempt's way to its worker took)",
		len(calls), *saturated, 100*used, check.MaxPerSecond(senders))
}

// TestOverload: ten times as many changes as the budget allows for, from four
// bridges; then the budget is raised.
func TestOverload(t *testing.T) {
	if *overload == 0 {
		t.Skip("takes minutes; run with -overload 3m")
	}
	p := newPipeline(t, "UPSTREAM_RPS=3", "MAX_UNCOMMITTED=1000", "PARK_AFTER=2")
	for range 2 {
		p.start("worker")
	}
	var bridges []*stack.Process
	for range 4 {
		bridges = append(bridges, p.start("bridge"))
	}
	p.traffic(load.Config{Accounts: 300, Rate: 30, Seed: 5})
	p.runLoad(t.Context(), *overload)()
	var held bridgeBacklog
	for _, b := range bridges {
		one := p.backlog(b)
		held.Uncommitted += one.Uncommitted
		held.PausedPartitions += one.PausedPartitions
	}
	made, lag := len(p.load.Changes()), p.lag()
	p.neverOver(3)
	if parked := p.parked(); len(parked) > 0 {
		t.Errorf("parked in the overload: %v", parked)
	}
	raised := time.Now()
	if out, code := p.command("worker", "budget", "set", "20"); code != 0 {
		t.Fatalf("budget set: exit code %d\n%s", code, out)
	}
	p.drained()
	parked := p.parked()
	v := p.verdict()
	t.Logf("%d changes, lag %d at their end, %+v; drained %s after the budget was raised; %d calls, %d in vain, parked %d",
		made, lag, held, time.Since(raised).Round(time.Second), len(v.calls), len(v.wasted), len(parked))
	if len(parked) > 0 {
		t.Errorf("parked: %v", parked)
	}
	p.neverOver(20)
}

// TestEverythingRestarted: first the budget's run is terminated in the middle of a
// deployment, with old workers and new ones; then everything is killed at once.
// Bridges go with the workers. Nothing is lost, nothing called twice in vain that
// no kill explains, and never more called than the budget.
func TestEverythingRestarted(t *testing.T) {
	t.Parallel()
	const rps = 5
	p := newPipeline(t, fmt.Sprintf("UPSTREAM_RPS=%d", rps), "SYNC_SLOTS=4") // few, so that all have something to call
	start := func() []*stack.Process {
		var all []*stack.Process
		for _, binary := range []string{"worker", "worker", "bridge", "bridge"} {
			process, _ := p.launch(binary)
			all = append(all, process)
		}
		return all
	}
	called := func(n int) {
		before := len(p.upstream.Calls())
		p.await("calls", func() bool { return len(p.upstream.Calls()) >= before+n })
	}
	old := start()
	var accounts []string
	for i := range 120 {
		accounts = append(accounts, fmt.Sprintf("account-%d", i))
	}
	p.change(accounts...)
	called(5)
	next := start()
	p.await("all share the budget", func() bool {
		status, shares := p.budgetStatus(), 0
		for _, w := range status.Workers {
			if w.Granted > 0 {
				shares++
			}
		}
		return shares == 4
	})

	id := contract.BudgetWorkflowID(p.name)
	run := func() string {
		d, err := world.temporal.DescribeWorkflowExecution(t.Context(), id, "")
		p.must(err)
		return d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}
	first := run()
	p.must(world.temporal.TerminateWorkflow(t.Context(), id, first, "test"))
	p.await("another budget", func() bool { return run() != first })
	time.Sleep(5 * time.Second) // all have asked it, and still use the shares that they have
	kills := []time.Time{time.Now()}
	for _, process := range old {
		p.kill(process)
	}
	called(15)
	kills = append(kills, time.Now())
	for _, process := range next {
		p.kill(process)
	}
	start()
	p.drained()
	v := p.verdict()
	if bad := v.unexplained(kills); len(bad) > 0 {
		t.Errorf("calls that no kill explains: %+v", bad)
	}
	p.neverOver(rps)
}
