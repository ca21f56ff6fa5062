package e2e

import (
	"net/http"
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// TestDiscard: an operator gives up what an account cannot get through, that is
// on record, and the account is like any other afterwards.
func TestDiscard(t *testing.T) {
	t.Parallel()
	p := newPipeline(t, "PARK_AFTER=2")
	worker, _ := p.startBoth()
	const broken = "Broken/account"
	heal := p.upstream.Inject(broken, upstream.Fault{Status: http.StatusBadRequest})
	p.change(broken)
	p.await("parked", func() bool {
		p.change("other") // others have to succeed meanwhile
		return p.parked()[broken].Account != ""
	})
	p.await("counted", func() bool { return p.status(worker).Parked.Accounts == 1 })
	if output, code := p.command("worker", "parked", "discard", broken, "--reason=test data", "--operator=ada"); code != 0 {
		t.Fatalf("worker parked discard: exit code %d\n%s", code, output)
	}
	p.await("released", func() bool { return len(p.parked()) == 0 && !p.started(broken) })
	var operators, reasons []string
	p.must(p.spanner.Single().Query(t.Context(), spanner.NewStatement(
		"SELECT Operator, Reason FROM AccountSyncs WHERE AccountId = 'Broken/account' AND Outcome = 'discarded' AND Changes = 1")).Do(func(r *spanner.Row) error {
		operators, reasons = append(operators, ""), append(reasons, "")
		return r.Columns(&operators[len(operators)-1], &reasons[len(reasons)-1])
	}))
	if len(operators) != 1 || operators[0] != "ada" || reasons[0] != "test data" {
		t.Errorf("on record: %q %q", operators, reasons)
	}
	before := p.calls(broken)
	heal()
	p.change(broken)
	p.drained()
	if n := p.calls(broken); n != before+1 {
		t.Errorf("%d calls for the next change", n-before)
	}
	if v := p.version(broken); v != 2 {
		t.Errorf("version %d", v)
	}
	if _, code := p.command("worker", "parked", "discard", broken, "--reason=again", "--operator=ada"); code != 1 {
		t.Errorf("discard of an account that is not parked: exit code %d", code)
	}
}
