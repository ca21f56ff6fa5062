package audittest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// view is what the tests read of `bridge replay show --json`.
type view struct {
	ID       string
	Status   string
	Paused   bool
	Operator string
	Progress struct {
		Complete bool
		Counts   struct{ Synced, Unchanged, Changed, Fresh, Parked, Invalid int }
	}
}

func (p *pipeline) show(id string) view {
	p.Helper()
	var views []view
	require.Zero(p, p.decode(&views, "bridge", "replay", "show", id, "--json"))
	require.Len(p, views, 1)
	return views[0]
}

// replayed returns how many rows of the sync log name the replay, by account.
func (p *pipeline) replayed(id string) map[string]int {
	p.Helper()
	rows := map[string]int{}
	statement := spanner.NewStatement("SELECT AccountId FROM AccountSyncs WHERE ReplayId = @id")
	statement.Params["id"] = id
	require.NoError(p, p.spanner.Single().Query(p.Context(), statement).Do(func(r *spanner.Row) error {
		var account string
		err := r.Column(0, &account)
		rows[account]++
		return err
	}))
	return rows
}

func (p *pipeline) calls(accounts []string) (n []int) {
	for _, account := range accounts {
		n = append(n, len(p.upstream.CallsOf(account)))
	}
	return n
}

// stopsSoon awaits that the slice under way comes back after an order of the type,
// and checks how long that took: the bridge hears of it within a second, and
// accounts under way get another.
func (p *pipeline) stopsSoon(id string, order enumspb.EventType) {
	p.Helper()
	var took time.Duration
	p.await("the slice comes back", func() bool {
		var ordered time.Time
		events := world.temporal.GetWorkflowHistory(p.Context(), p.name+"/replay/"+id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(p, err)
			switch {
			case event.GetEventType() == order:
				ordered = event.GetEventTime().AsTime()
			case event.GetActivityTaskCompletedEventAttributes() != nil && !ordered.IsZero():
				took = event.GetEventTime().AsTime().Sub(ordered)
				return true
			}
		}
		return false
	})
	p.Logf("the slice came back after %s", took.Round(time.Millisecond))
	require.Less(p, took, 4*time.Second)
}

// TestReplay: a range of records is replayed while its bridge is killed, and it
// is paused and resumed: every account is called once more, the offsets stay,
// and the log names the replay.
func TestReplay(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.run("worker")
	bridge := p.run("bridge")
	all := accounts(60)
	p.change(all...)
	p.committed()
	before, offsets := p.calls(all), p.offsets()
	var ranges []string
	for partition, end := range offsets {
		ranges = append(ranges, fmt.Sprintf("%s/%d/0-%d", p.topic, partition, end-1))
	}
	records := strings.Join(ranges, ",")

	var survey struct {
		Changes, Accounts, Calls int
		Budget                   struct{ Limit int }
		CallsPerSecond           float64 `json:"calls_per_second"`
	}
	require.Zero(t, p.decode(&survey, "bridge", "replay", "--records", records, "--dry-run", "--json"))
	require.Equal(t, 60, survey.Accounts)
	require.Equal(t, 50, survey.Budget.Limit, "the budget was asked")
	require.LessOrEqual(t, survey.CallsPerSecond, 50.0)
	require.Equal(t, before, p.calls(all), "a dry run calls nobody")

	p.command("bridge", "replay", "--records", records, "--reason", "drill", "--operator", "ada", "--id", "drill", "--max-rps", "6", "--detach")
	p.await("some are done", func() bool { return len(p.replayed("drill")) >= 10 })
	require.NoError(t, bridge.Kill())
	p.run("bridge")
	p.await("it goes on after the kill", func() bool { return len(p.replayed("drill")) >= 25 })
	p.command("bridge", "replay", "pause", "drill")
	p.stopsSoon("drill", enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
	require.True(t, p.show("drill").Paused)
	rest := len(p.replayed("drill"))
	time.Sleep(3 * time.Second) // longer than an account takes
	require.Len(t, p.replayed("drill"), rest, "nothing moves any more")
	require.Less(t, rest, 60)
	// The slice came back with its progress; the few accounts whose end it did not
	// wait for are looked at after it is resumed.
	synced := p.show("drill").Progress.Counts.Synced
	require.GreaterOrEqual(t, synced, rest-6)
	require.LessOrEqual(t, synced, rest)
	p.command("bridge", "replay", "resume", "drill")
	p.await("it is done", func() bool { return p.show("drill").Status == "completed" })

	for account, n := range p.replayed("drill") {
		require.Equal(t, 1, n, "rows of %s", account)
	}
	for i, n := range p.calls(all) {
		require.Equal(t, before[i]+1, n, all[i])
	}
	v := p.show("drill")
	require.Equal(t, 60, v.Progress.Counts.Synced)
	require.Equal(t, 60, v.Progress.Counts.Unchanged)
	require.Equal(t, "ada", v.Operator)
	require.Equal(t, offsets, p.offsets())
	require.Contains(t, p.command("bridge", "replay", "list"), "drill")
	_, stderr, code := p.exit("bridge", "replay", "cancel", "drill")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is over")

	events := world.temporal.GetWorkflowHistory(t.Context(), p.name+"/account/"+all[0], "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			require.EqualValues(t, 4, scheduled.GetPriority().GetPriorityKey(), "between live changes and parked accounts")
		}
	}

	r, code := p.verify()
	require.Zero(t, code, "%+v", r.Violations)
	require.Equal(t, 60, r.Counts.Replayed)
	require.Contains(t, p.command("worker", "histories", "verify"), "Replay closed")
	require.Contains(t, p.command("worker", "audit", all[0]), "replay drill, asked for by ada")
	t.Run("privacy", p.noAccountData)
}

// TestReplayOfAccounts: named accounts, one that fails for good, one that has a
// live change waiting, one that has changed upstream without telling.
func TestReplayOfAccounts(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, "SETTLE_DELAY=6s")
	p.run("worker")
	p.run("bridge")
	p.change("quiet", "silent", "live")
	p.committed()
	before := p.calls([]string{"live"})[0]
	p.upstream.Change("silent") // no record says so
	defer p.upstream.Inject("bad", upstream.Fault{Status: 422})()
	time.Sleep(settleTime) // for the change to be readable
	p.change("live")
	p.await("the live change waits", func() bool {
		return strings.Contains(p.command("worker", "audit", "live", "--since", "5s"), "signalled")
	})
	stop := p.succeeding()
	out := p.command("bridge", "replay", "--accounts", "quiet,silent,live,bad", "--reason", "they said so", "--id", "said-so")
	stop()
	require.Contains(t, out, "completed after")
	require.Regexp(t, `"silent" +[0-9a-f]{12} -> [0-9a-f]{12}\n`, out)
	for _, line := range []string{"synced     3", "changed    2", "unchanged  1", "parked     1"} {
		require.Contains(t, out, line)
	}
	require.Equal(t, before+1, p.calls([]string{"live"})[0], "one call for the change and the replay")
	p.committed()
	require.Equal(t, before+1, p.calls([]string{"live"})[0])

	// The sync log has the same, in full.
	var report struct {
		Calls, Accounts, Unchanged int
		Changed                    []struct{ Account, Before, After string }
	}
	require.Zero(t, p.decode(&report, "worker", "audit", "replay", "said-so", "--json"))
	require.Equal(t, 3, report.Calls)
	require.Equal(t, 3, report.Accounts)
	require.Equal(t, 1, report.Unchanged)
	require.Len(t, report.Changed, 2)
	for _, c := range report.Changed {
		require.Regexp(t, fmt.Sprintf(`%q +%s -> %s\n`, c.Account, c.Before[:12], c.After[:12]), out)
	}
	_, stderr, code := p.exit("worker", "audit", "replay", "never")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `names no replay "never"`)

	// Replaying what is parked, once it is mended.
	out, _, code = p.exit("bridge", "replay", "--parked", "422", "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "accounts  1")
}

// TestReplayIsCancelled ends it; what was not begun is not called.
func TestReplayIsCancelled(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.run("worker")
	p.run("bridge")
	all := accounts(40)
	p.command("bridge", "replay", "--accounts", strings.Join(all, ","), "--reason", "drill", "--id", "c", "--max-rps", "2", "--detach")
	p.await("some are done", func() bool { return len(p.replayed("c")) >= 3 })
	p.command("bridge", "replay", "cancel", "c")
	p.stopsSoon("c", enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED)
	p.await("it is cancelled", func() bool { return p.show("c").Status == "canceled" })
	done := len(p.replayed("c"))
	require.Less(t, done, 40)
	time.Sleep(3 * time.Second) // longer than an account takes
	require.LessOrEqual(t, len(p.replayed("c")), done+2)
}

// TestReplayCallsOnce: an account is called for a live change before its turn
// comes; and a bridge dies during an account's call, which has had another run
// before the next bridge looks at it. Neither is called again.
func TestReplayCallsOnce(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.run("worker")
	bridge := p.run("bridge")
	all := []string{"first", "orphaned", "live"}
	p.change(all...)
	p.committed()
	before := p.calls(all)
	p.command("bridge", "replay", "--accounts", strings.Join(all, ","), "--reason", "drill", "--id", "once", "--max-rps", "0.15", "--detach")
	p.await("the first is done", func() bool { return p.replayed("once")["first"] == 1 })
	p.command("bridge", "replay", "pause", "once")
	p.stopsSoon("once", enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
	p.change("live")
	p.committed()

	defer p.upstream.Inject("orphaned", upstream.Fault{Delay: time.Second, Times: 1})()
	p.command("bridge", "replay", "resume", "once")
	p.await("the call is under way", func() bool { return p.calls(all)[1] > before[1] })
	require.NoError(t, bridge.Kill())
	p.await("it is written", func() bool { return p.replayed("once")["orphaned"] == 1 })
	workflowID := contract.AccountWorkflowID(p.name, "orphaned")
	p.await("its run has ended", func() bool {
		description, err := world.temporal.DescribeWorkflowExecution(t.Context(), workflowID, "")
		require.NoError(t, err)
		return description.GetWorkflowExecutionInfo().GetCloseTime() != nil
	})
	between, err := world.temporal.SignalWithStartWorkflow(t.Context(), workflowID, contract.SignalRetry, nil,
		client.StartWorkflowOptions{TaskQueue: p.name}, contract.AccountSync, contract.AccountSyncInput{Account: "orphaned"})
	require.NoError(t, err)
	require.NoError(t, between.Get(t.Context(), nil))

	p.run("bridge")
	p.await("it is done", func() bool { return p.show("once").Status == "completed" })
	require.Equal(t, map[string]int{"first": 1, "orphaned": 1}, p.replayed("once"))
	for i, n := range p.calls(all) {
		require.Equal(t, before[i]+1, n, all[i])
	}
	counts := p.show("once").Progress.Counts
	require.Equal(t, 1, counts.Synced)
	require.Equal(t, 2, counts.Fresh)
	r, code := p.verify()
	require.Zero(t, code, "%+v", r.Violations)
}
