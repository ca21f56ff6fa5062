package e2e

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/check"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// verdict is what became of a pipeline's changes.
type verdict struct {
	rows  map[string]check.Row
	syncs []check.Sync
	calls []upstream.Call
	// wasted are the calls without a row in the sync log: those that failed, those
	// whose worker died before it had written, and those that were fenced.
	wasted []upstream.Call
}

// verdict reads the tables and fails the test if a promise is broken: a change
// lost, an account stale, an offset uncommitted, a call more than the optimum
// and the wasted ones, or a call for an account whose row covered everything.
func (p *pipeline) verdict() verdict {
	p.t.Helper()
	ctx := p.t.Context()
	rows, err := check.ReadRows(ctx, p.spanner)
	p.must(err)
	syncs, err := check.ReadSyncs(ctx, p.spanner)
	p.must(err)
	v := verdict{rows: map[string]check.Row{}, syncs: syncs, calls: p.upstream.Calls()}
	for _, row := range rows {
		v.rows[row.Account] = row
	}
	var made []check.Made
	for _, c := range p.load.Changes() {
		made = append(made, check.Made{Account: c.Account, At: c.At})
	}
	if lost := check.Lost(made, rows, settle, nil); len(lost) > 0 {
		p.t.Errorf("%d changes lost, the first %s of %s", len(lost), lost[0].Account, lost[0].At)
	}
	if stale := check.Stale(rows, p.upstream.Truth()); len(stale) > 0 {
		p.t.Errorf("stale: %q", stale)
	}
	if lag := p.lag(); lag != 0 {
		p.t.Errorf("lag %d", lag)
	}
	v.match()
	if optimum := check.OptimalCalls(syncs, settle, p.delay); len(v.calls)-len(v.wasted) > optimum {
		p.t.Errorf("%d calls, of which %d were not written; the optimum is %d", len(v.calls), len(v.wasted), optimum)
	}
	for _, call := range v.wasted {
		if row, ok := v.rows[call.Account]; ok && call.Start.After(row.CalledAt) {
			p.t.Errorf("%s was called at %s, although its row, called at %s, covered everything", call.Account, call.Start, row.CalledAt)
		}
	}
	return v
}

// version is the version in the account's row now, 0 if there is none.
func (p *pipeline) version(account string) int64 {
	p.t.Helper()
	rows, err := check.ReadRows(p.t.Context(), p.spanner)
	p.must(err)
	for _, row := range rows {
		if row.Account == account {
			return row.Version
		}
	}
	return 0
}

// match finds each sync's call: the first of the account that is no earlier than
// CalledAt, which is taken in Temporal's clock right before it is sent.
func (v *verdict) match() {
	written := map[string][]time.Time{}
	for _, s := range v.syncs {
		if s.Outcome != string(contract.OutcomeFenced) {
			written[s.Account] = append(written[s.Account], s.CalledAt)
		}
	}
	for _, times := range written {
		slices.SortFunc(times, time.Time.Compare)
	}
	calls := slices.Clone(v.calls)
	slices.SortStableFunc(calls, func(a, b upstream.Call) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), a.Start.Compare(b.Start))
	})
	for _, call := range calls {
		times := written[call.Account]
		if len(times) > 0 && !call.Start.Before(times[0]) {
			written[call.Account] = times[1:]
			continue
		}
		v.wasted = append(v.wasted, call)
	}
}

// unexplained returns the wasted calls that upstream answered well and that no
// kill interrupted: a call and its write take less than a second here.
func (v verdict) unexplained(kills []time.Time) []upstream.Call {
	return slices.DeleteFunc(slices.Clone(v.wasted), func(call upstream.Call) bool {
		if call.Status != http.StatusOK && call.Status != http.StatusNotFound && call.Status != 0 {
			return true
		}
		return slices.ContainsFunc(kills, func(kill time.Time) bool {
			return kill.After(call.Start) && kill.Sub(call.Start) < time.Second
		})
	})
}

// noWaste fails the test if any call was in vain.
func (p *pipeline) noWaste(v verdict) {
	p.t.Helper()
	if len(v.wasted) > 0 {
		p.t.Errorf("calls that were not written: %+v", v.wasted)
	}
}
