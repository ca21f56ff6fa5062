package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// TestVersionsProveFreshness: the settle time is far below upstream's lag, which
// leaves rows stale for good, unless changes and answers say how new they are.
func TestVersionsProveFreshness(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string][]string{
		"with versions": {"CHANGE_VERSION=json:version", "UPSTREAM_VERSION=json:version"},
		"without":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, append(versions, "SETTLE_TIME=50ms", "SETTLE_DELAY=200ms")...)
			accounts := make([]string, 8)
			for i := range accounts {
				accounts[i] = fmt.Sprint("account-", i)
			}
			p.change(accounts...)
			<-time.After(settleTime) // they exist upstream: "not found" has no version
			p.startBoth()
			p.drained() // until now the new budget has granted nothing
			tick := time.NewTicker(150 * time.Millisecond)
			defer tick.Stop()
			for i := range 80 {
				<-tick.C
				p.change(accounts[(i*5)%len(accounts)])
			}
			p.drained()
			rows, err := check.ReadRows(t.Context(), p.spanner)
			p.must(err)
			syncs, err := check.ReadSyncs(t.Context(), p.spanner)
			p.must(err)
			stale, unsettled := check.Stale(rows, p.upstream.Truth()), 0
			for _, sync := range syncs {
				if sync.Outcome == string(contract.OutcomeUnsettled) {
					unsettled++
				}
			}
			t.Logf("%d calls, %d of them not written; stale %q", len(p.upstream.Calls()), unsettled, stale)
			if versions == nil {
				if len(stale) == 0 {
					t.Log("luck: upstream was quick with the last changes")
				}
				return
			}
			if len(stale) > 0 {
				t.Errorf("stale: %q", stale)
			}
			if unsettled == 0 {
				t.Error("no answer came too early, so this proves nothing")
			}
			report, code := p.command("worker", "settle", "report")
			if t.Log(report); code != 0 {
				t.Errorf("worker settle report: exit code %d", code)
			}
			if parked := p.parked(); len(parked) > 0 {
				t.Errorf("parked: %v", parked)
			}
		})
	}
}
