package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// TestOutage: whatever upstream answers everybody, nobody is to blame for it.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]upstream.Fault{
		"500":   {Status: http.StatusInternalServerError},
		"401":   {Status: http.StatusUnauthorized},
		"pages": {Kind: upstream.HTML},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, "PARK_AFTER=2") // the least there is
			p.startBoth()
			p.change("before") // a success, after which failures could be charged
			p.drained()
			p.traffic(load.Config{Accounts: 12, Rate: 3, Seed: 3})
			recover := p.upstream.Inject("", fault)
			p.runLoad(t.Context(), 10*time.Second)()
			if answered := len(p.upstream.Calls()); answered < 3 {
				t.Errorf("only %d calls met the outage", answered)
			}
			if parked := p.parked(); len(parked) > 0 {
				t.Errorf("parked in the outage: %v", parked)
			}
			if p.lag() == 0 {
				t.Error("everything is committed although nothing can be read")
			}
			recover()
			p.drained()
			if parked := p.parked(); len(parked) > 0 {
				t.Errorf("parked after the outage: %v", parked)
			}
			p.verdict()
		})
	}
}

// TestParked: one account fails on its own, is set aside, and comes back.
func TestParked(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadRequest} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t, "PARK_AFTER=2", "PERMIT_WAIT=1s", "WRITE_TIMEOUT=2s")
			// PARK_AFTER × (1.5 × (last sleep + row check + permit + call + write) + backoff)
			const accountLease = 2 * (time.Duration(1.5*7.5*float64(time.Second)) + 30*time.Second)
			p.startBoth()
			const broken = "Broken/account" // its workflow ID is a hash
			heal := p.upstream.Inject(broken, upstream.Fault{Status: status})
			p.change(broken)
			p.traffic(load.Config{Accounts: 5, Rate: 2, Seed: 4})
			ctx, stop := context.WithCancel(t.Context())
			others := p.runLoad(ctx, patience) // others have to succeed meanwhile
			var account parkedAccount
			p.await("parked", func() bool { account = p.parked()[broken]; return account.Account != "" })
			stop()
			others()
			if f := account.Failure; !f.Parked || f.Last.Sub(f.Since) > accountLease {
				t.Errorf("parked with %+v", f)
			}
			p.drained() // its offset included
			p.change(broken)
			p.drained() // what a parked run takes in counts as done

			heal()
			account = p.parked()[broken]
			before := p.calls(broken)
			if output, code := p.command("worker", "parked", "retry", broken); code != 0 {
				t.Fatalf("worker parked retry: exit code %d\n%s", code, output)
			}
			p.await("retried", func() bool { return p.calls(broken) > before })
			if next := p.upstream.CallsOf(broken)[before].Start; !next.Before(account.NextTry) {
				t.Errorf("called at %s, which is no earlier than the next try at %s", next, account.NextTry)
			}
			p.await("no longer parked", func() bool { return len(p.parked()) == 0 })
			// The second change may not have settled for that call. Then a run of
			// its own follows, though its offset is committed.
			p.await("no run open", func() bool { return !p.started(broken) })
			p.verdict()
			if _, code := p.command("worker", "parked", "retry", broken); code != 1 {
				t.Errorf("retry of an account that is not parked: exit code %d", code)
			}
		})
	}
}

// TestGone: an account that upstream does not know any more.
func TestGone(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	p.startBoth()
	p.change("alice", "bob")
	p.drained()
	p.upstream.Delete("alice")
	p.produce([]byte("alice"), []byte("{}"))
	p.drained()
	v := p.verdict()
	p.noWaste(v)
	if !v.rows["alice"].Deleted || v.rows["bob"].Deleted {
		t.Errorf("rows %+v", v.rows)
	}
	p.change("alice") // it is created again
	p.drained()
	if v := p.verdict(); v.rows["alice"].Deleted {
		t.Error("still marked deleted")
	}
}

// TestRetryAfter: upstream says when to come again, in both forms.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"seconds", "date"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			p := newPipeline(t)
			p.startBoth()
			const wait = 4 * time.Second // the backoff without it is 1 s
			retryAfter := "4"
			date := time.Now().Add(delay + 2*time.Second + wait).UTC().Truncate(time.Second)
			if form == "date" {
				retryAfter = date.Format(http.TimeFormat)
			}
			p.upstream.Inject("alice", upstream.Fault{Status: http.StatusTooManyRequests, RetryAfter: retryAfter, Times: 1})
			p.change("alice")
			p.drained()
			p.verdict()
			calls := p.upstream.CallsOf("alice")
			if len(calls) != 2 {
				t.Fatalf("calls %+v, want one refused and one answered", calls)
			}
			asked := calls[0].Start.Add(wait)
			if form == "date" {
				asked = date
			}
			// A date is turned into a duration by a clock that is not quite the one
			// which measures it.
			if calls[1].Start.Before(asked.Add(-clockSkew)) {
				t.Errorf("called again at %s, not before %s was asked", calls[1].Start, asked)
			}
		})
	}
}
