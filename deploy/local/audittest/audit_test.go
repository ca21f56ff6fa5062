package audittest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// report is what the tests read of `worker audit verify --json`.
type report struct {
	Counts struct {
		Syncs, Changes, Accounts, Records, Replayed int
		PartiesEnded                                int `json:"parked_runs_ended"`
	} `json:"counts"`
	Violations []struct{ Kind, Account, Text string } `json:"violations"`
}

func (p *pipeline) verify() (r report, code int) {
	p.Helper()
	code = p.decode(&r, "worker", "audit", "verify", "--json")
	return r, code
}

// TestAudit: what really ran is explained and accepted; what is then broken on
// purpose is found.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.run("worker")
	bridge := p.run("bridge")
	all := accounts(8)
	p.change(all...)
	p.change(all[:4]...)
	for _, account := range []string{"parked", "dropped"} {
		defer p.upstream.Inject(account, upstream.Fault{Status: 422})()
		p.change(account)
	}
	stop := p.succeeding()
	p.await("both are parked", func() bool {
		var parked []struct{ Account string }
		require.Zero(t, p.decode(&parked, "worker", "parked", "list", "--json"))
		return len(parked) == 2
	})
	records := 14 + stop()
	p.committed()

	r, code := p.verify()
	require.Zero(t, code, "%+v", r.Violations)
	require.Equal(t, 9, r.Counts.Accounts)
	require.Equal(t, records, r.Counts.Records)

	t.Run("timeline", func(t *testing.T) {
		var timeline struct {
			Entries []struct {
				What, By, Text string
				Committed      *bool
			}
			Missing []string
		}
		require.Zero(t, p.decode(&timeline, "worker", "audit", all[0], "--json"))
		var whats []string
		for _, e := range timeline.Entries {
			whats = append(whats, e.What)
			if e.What == "signalled" {
				require.NotEmpty(t, e.By, "which bridge")
			}
			if e.Committed != nil {
				require.True(t, *e.Committed, e.Text)
			}
		}
		text := strings.Join(whats, " ")
		require.Regexp(t, `^started signalled (signalled )*scheduled attempt .*synced`, text)
		require.Contains(t, text, "completed")
		require.Empty(t, timeline.Missing)
	})
	t.Run("record", func(t *testing.T) {
		for partition := range p.offsets() {
			out := p.command("worker", "audit", "--record", p.topic+"/"+string(rune('0'+partition))+"/0")
			require.Regexp(t, `record .*: (covered by the call of|pending in the open run .*ParkedAccountSync)`, out)
			var timeline struct {
				Account, Verdict string
				Record           struct{ Account string }
			}
			require.Zero(t, p.decode(&timeline, "worker", "audit", "--record", p.topic+"/"+string(rune('0'+partition))+"/0", "--json"))
			require.Equal(t, timeline.Account, timeline.Record.Account)
			require.Contains(t, out, timeline.Verdict)
		}
	})
	t.Run("export", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(p.command("worker", "audit", "export", "--since", "1h")), "\n")
		require.Len(t, lines, r.Counts.Syncs)
		for _, line := range lines {
			require.NoError(t, json.Unmarshal([]byte(line), &struct{}{}))
		}
		require.Len(t, strings.Split(strings.TrimSpace(p.command("worker", "audit", "export", "--since", "1h", "--format", "csv")), "\n"), r.Counts.Syncs+1)
	})
	t.Run("histories", func(t *testing.T) {
		dir := t.TempDir()
		out := p.command("worker", "histories", "verify", "--save", dir)
		require.Contains(t, out, "AccountSync closed")
		require.Contains(t, out, "Budget open")
		require.Contains(t, out, " 0 do not fit")
		require.Equal(t, out, p.command("worker", "histories", "verify", "--from", dir))
	})
	t.Run("privacy", p.noAccountData)

	t.Run("since", func(t *testing.T) {
		p.await("it was a while ago", func() bool {
			return strings.Contains(p.command("worker", "audit", all[0], "--since", "1s"), "nothing is known of it in this window")
		})
	})
	t.Run("retention", func(t *testing.T) {
		// The runs are gone, as after the namespace's retention; the log is not.
		p.deleteRuns(contract.AccountWorkflowID(p.name, all[3]))
		var timeline struct {
			Entries []struct{ From, Run string }
			Missing []string
		}
		p.await("its runs are gone", func() bool {
			timeline.Entries, timeline.Missing = nil, nil
			require.Zero(t, p.decode(&timeline, "worker", "audit", all[3], "--json"))
			for _, e := range timeline.Entries {
				if e.From != "sync-log" {
					return false
				}
			}
			return true
		})
		require.NotEmpty(t, timeline.Entries)
		for _, e := range timeline.Entries {
			require.Contains(t, strings.Join(timeline.Missing, "\n"), "run "+e.Run+": the sync log names it, but Temporal's retention has dropped its history")
		}
		r, code := p.verify()
		require.Zero(t, code, "%+v", r.Violations)
	})

	t.Run("planted", func(t *testing.T) {
		// The parked accounts' runs are ended and deleted by hand while the bridge
		// is away.
		require.NoError(t, bridge.Kill())
		p.deleteRuns(contract.AccountWorkflowID(p.name, "dropped"))
		require.NoError(t, world.temporal.TerminateWorkflow(t.Context(), contract.AccountWorkflowID(p.name, "parked"), "", "tidying up"))
		p.sql("UPDATE Accounts SET Payload = '{\"version\": 77}' WHERE AccountId = '" + all[1] + "'")
		p.sql("DELETE FROM Accounts WHERE AccountId = '" + all[2] + "'")
		var kinds []string
		p.await("all violations are seen, visibility included", func() bool {
			r, code := p.verify()
			kinds = nil
			for _, v := range r.Violations {
				kinds = append(kinds, v.Kind+" "+v.Account)
			}
			return code == 1 && r.Counts.PartiesEnded == 1 && slices.Contains(kinds, "uncovered dropped")
		})
		require.ElementsMatch(t, []string{"row-differs " + all[1], "row-differs " + all[2], "uncovered " + all[2], "uncovered parked", "parked-run-ended parked", "uncovered dropped"}, kinds)
	})
}

// deleteRuns deletes every run of a workflow, open or closed.
func (p *pipeline) deleteRuns(workflowID string) {
	p.Helper()
	p.await("all runs of "+workflowID+" are deleted", func() bool {
		response, err := world.temporal.ListWorkflow(p.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + workflowID + "'"})
		require.NoError(p, err)
		for _, execution := range response.GetExecutions() {
			_, err := world.temporal.WorkflowService().DeleteWorkflowExecution(p.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: world.Temporal.Namespace, WorkflowExecution: execution.GetExecution(),
			})
			var gone *serviceerror.NotFound
			require.True(p, err == nil || errors.As(err, &gone), err)
		}
		return len(response.GetExecutions()) == 0
	})
}

// noAccountData looks for what upstream answers in every history there is:
// account keys are in Temporal, account data never is.
func (p *pipeline) noAccountData(t *testing.T) {
	response, err := world.temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId STARTS_WITH '" + p.name + "/'"})
	require.NoError(t, err)
	require.NotEmpty(t, response.GetExecutions())
	keys := 0
	for _, execution := range response.GetExecutions() {
		events := world.temporal.GetWorkflowHistory(t.Context(), execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			text, err := protojson.Marshal(event)
			require.NoError(t, err)
			plain := string(text) + payloads(t, text)
			require.NotContains(t, plain, "example.com")
			require.NotContains(t, plain, "\"city\"")
			require.NotRegexp(t, "[0-9a-f]{64}", plain, "a payload's whole hash")
			if strings.Contains(plain, "\"account\":\"account-") {
				keys++
			}
		}
	}
	require.Positive(t, keys, "the search would not find what it looks for")
}

// payloads returns every payload in an event's JSON in plain text.
func payloads(t *testing.T, text []byte) string {
	t.Helper()
	var plain strings.Builder
	var walk func(any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			if data, ok := n["data"].(string); ok {
				var raw []byte
				require.NoError(t, json.Unmarshal([]byte("\""+data+"\""), &raw))
				plain.Write(raw)
			}
			for _, child := range n {
				walk(child)
			}
		case []any:
			for _, child := range n {
				walk(child)
			}
		}
	}
	var root any
	require.NoError(t, json.Unmarshal(text, &root))
	walk(root)
	return plain.String()
}
