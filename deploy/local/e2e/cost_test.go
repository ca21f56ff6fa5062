package e2e

import (
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestRunCosts counts what a run costs Temporal, without and with further
// signals: an event for each, and never more than two workflow tasks.
func TestRunCosts(t *testing.T) {
	t.Parallel()
	const long = 12 * time.Second // five signals a second apart, and time to spare
	p := newPipeline(t, "SETTLE_DELAY="+long.String())
	p.delay = long
	p.startBoth()
	p.change("none", "five")
	for signals := 1; signals <= 6; signals++ {
		p.await("signalled", func() bool {
			events, _ := p.history("five")
			return events[enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED] == signals
		})
		if signals < 6 {
			p.change("five")
		}
	}
	p.drained()
	p.noWaste(p.verdict())
	for account, want := range map[string]int{"none": 12, "five": 17} {
		events, total := p.history(account)
		if total != want {
			t.Errorf("%s: %d events, want %d: %v", account, total, want, events)
		}
		if tasks := events[enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED]; tasks != 2 {
			t.Errorf("%s: %d workflow tasks, want 2", account, tasks)
		}
		if events[enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED] != 1 || p.calls(account) != 1 {
			t.Errorf("%s: %d calls and %v, want one call and a run that completed", account, p.calls(account), events)
		}
	}
}

// history counts the events of the account's latest run; all are 0 while there
// is none.
func (p *pipeline) history(account string) (events map[enumspb.EventType]int, total int) {
	p.t.Helper()
	events = map[enumspb.EventType]int{}
	iterator := world.temporal.GetWorkflowHistory(p.t.Context(), contract.AccountWorkflowID(p.name, account), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		if err != nil {
			return events, total
		}
		events[event.GetEventType()]++
		total++
	}
	return events, total
}
