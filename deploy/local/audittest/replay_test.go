package audittest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// view is what the tests read of `bridge replay show --json`.
type view struct {
	ID       string
	Status   string
	Paused   bool
	Operator string
	Progress struct {
		Complete bool
		Counts   struct{ Synced, Unchanged, Changed, Parked, Invalid int }
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

// TestReplay: a range of records is replayed while its bridge is killed, and it
// is paused and resumed: every account is called once more, the offsets stay,
// and the log names the replay.
func TestReplay(t *testing.T) {
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

	var survey struct{ Changes, Accounts, Calls int }
	require.Zero(t, p.decode(&survey, "bridge", "replay", "--records", records, "--dry-run", "--json"))
	require.Equal(t, 60, survey.Accounts)
	require.Equal(t, before, p.calls(all), "a dry run calls nobody")

	p.command("bridge", "replay", "--records", records, "--reason", "drill", "--operator", "ada", "--id", "drill", "--max-rps", "6", "--detach")
	p.await("some are done", func() bool { return len(p.replayed("drill")) >= 10 })
	require.NoError(t, bridge.Kill())
	p.run("bridge")
	p.await("it goes on after the kill", func() bool { return len(p.replayed("drill")) >= 25 })
	p.command("bridge", "replay", "pause", "drill")
	p.await("it is paused", func() bool { return p.show("drill").Paused })
	var rest int
	p.await("nothing moves any more", func() bool {
		was := rest
		rest = len(p.replayed("drill"))
		time.Sleep(3 * time.Second) // longer than an account takes
		return was == rest
	})
	require.Less(t, rest, 60)
	require.Equal(t, rest, p.show("drill").Progress.Counts.Synced, "the slice came back with its progress")
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
}

// TestReplayOfAccounts: named accounts, one that fails for good, one that has a
// live change waiting, one that has changed upstream without telling.
func TestReplayOfAccounts(t *testing.T) {
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
	out := p.command("bridge", "replay", "--accounts", "quiet,silent,live,bad", "--reason", "they said so")
	require.Contains(t, out, "completed after")
	for _, line := range []string{"synced     3", "changed    2", "unchanged  1", "parked     1"} {
		require.Contains(t, out, line)
	}
	require.Equal(t, before+1, p.calls([]string{"live"})[0], "one call for the change and the replay")
	p.committed()
	require.Equal(t, before+1, p.calls([]string{"live"})[0])

	// Replaying what is parked, once it is mended.
	out, _, code := p.exit("bridge", "replay", "--parked", "422", "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "accounts  1")
}

// TestReplayIsCancelled ends it; what was not begun is not called.
func TestReplayIsCancelled(t *testing.T) {
	p := newPipeline(t)
	p.run("worker")
	p.run("bridge")
	all := accounts(40)
	p.command("bridge", "replay", "--accounts", strings.Join(all, ","), "--reason", "drill", "--id", "c", "--max-rps", "2", "--detach")
	p.await("some are done", func() bool { return len(p.replayed("c")) >= 3 })
	p.command("bridge", "replay", "cancel", "c")
	p.await("it is cancelled", func() bool { return p.show("c").Status == "canceled" })
	done := len(p.replayed("c"))
	require.Less(t, done, 40)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	<-ctx.Done()
	require.LessOrEqual(t, len(p.replayed("c")), done+2)
}
