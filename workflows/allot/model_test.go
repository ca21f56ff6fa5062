package allot_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quiesce-io/quiesce/workflows/allot"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// passing is how long it may take until the next step, the likely more often.
var passing = []time.Duration{
	0, 0, 0, 0, time.Millisecond, time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 999 * time.Millisecond,
	time.Second, 1100 * time.Millisecond, 1100 * time.Millisecond, 4500 * time.Millisecond, 6 * time.Second, 9 * time.Second, 14 * time.Second,
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// client is what a worker may believe: it knows only what reached it.
type client struct {
	name     string
	seq      int64
	epoch    int64
	open     bool
	asking   *request // the one whose answer it would accept
	spans    []span   // its shares, by when they ended
	silenced bool     // killed, or has left: never asks again

	succeeded time.Time // its latest success
	probed    time.Time // its latest probe while it alone is out
}

// span is a share a client had from a time on; until is when it must not use it
// any more, whatever it hears.
type span struct {
	calls       int
	from, until time.Time
}

// request is on its way to the budget, and may get there late, twice or never.
type request struct {
	contract.ShareRequest
	client *client
	asked  time.Time
}

type response struct {
	*request
	share contract.Share
}

// end ends the client's present share.
func (c *client) end(t time.Time) {
	if n := len(c.spans); n > 0 && c.spans[n-1].until.After(t) {
		c.spans[n-1].until = t
	}
}

// most returns the most calls that c may have started in a second ending at t,
// by the shares alone.
func (c *client) most(t time.Time) int {
	most := 0
	for _, s := range c.spans {
		if s.until.Add(time.Second).After(t) {
			most = max(most, s.calls)
		}
	}
	return most
}

// fleet is the model: clients, messages in flight, and the real allocator.
type fleet struct {
	state   *contract.BudgetState
	now     time.Time
	clients []*client
	sent    []*request
	replies []response
	budgets []span // budgets in force; until is zero for the present one
	probes  []time.Time
}

func (f *fleet) start(rps int, t *rapid.T) {
	c := &client{name: fmt.Sprintf("w%d", len(f.clients))}
	f.clients = append(f.clients, c)
	f.ask(c, rps, t)
}

func (f *fleet) living() (n int) {
	for _, c := range f.clients {
		if !c.silenced {
			n++
		}
	}
	return n
}

func (f *fleet) ask(c *client, rps int, t *rapid.T) {
	c.seq++
	r := &request{client: c, asked: f.now, ShareRequest: contract.ShareRequest{
		Worker: c.name, Started: epoch, Seq: c.seq, RPS: rps, Held: c.most(f.now),
		Demand: rapid.SampledFrom([]int{0, 1, 5, 100000, 100000, 100000}).Draw(t, "demand"),
	}}
	switch rapid.IntRange(0, 39).Draw(t, "news") {
	case 0:
		r.Throttled = 1
		r.RetryAfter = contract.Duration(rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "retry after"))
	case 1:
		r.Breaker = &contract.BreakerEvent{Open: !c.open, Cause: "500 for everybody", Epoch: c.epoch}
		if r.Breaker.Open && rapid.IntRange(0, 3).Draw(t, "old build") > 0 {
			r.Breaker.Since = f.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "failing for"))
		}
	case 2, 3, 4:
		c.succeeded = f.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "call took"))
	}
	r.Succeeded = c.succeeded
	c.asking = r
	f.sent = append(f.sent, r)
}

// leave has c say that it made its last call. That may get there late or never,
// and what c asked before later still. Or it is as in a rolling restart: c had its
// share, says so at once, and the others ask soon after.
func (f *fleet) leave(c *client, rps int, t *rapid.T) {
	orderly := rapid.Bool().Draw(t, "orderly")
	if orderly {
		f.round(rps, t)
		f.now = f.now.Add(rapid.SampledFrom(passing).Draw(t, "leaves after"))
	}
	c.end(f.now)
	f.ask(c, rps, t)
	last := c.asking
	last.Leaving = true
	c.asking, c.silenced = nil, true
	if orderly {
		f.deliver(t, last)
		f.now = f.now.Add(rapid.SampledFrom(passing).Draw(t, "others ask after"))
		f.round(rps, t)
		f.check(t)
	}
}

// round is a moment at which nobody dawdles: asked, answered, received.
func (f *fleet) round(rps int, t *rapid.T) {
	for _, c := range f.clients {
		if !c.silenced {
			f.ask(c, rps, t)
		}
	}
	for len(f.sent) > 0 {
		r := f.sent[0]
		f.sent = f.sent[1:]
		f.deliver(t, r)
	}
	for len(f.replies) > 0 {
		a := f.replies[0]
		f.replies = f.replies[1:]
		f.receive(a)
	}
}

func take[T any](t *rapid.T, from *[]T) (T, bool) {
	if len(*from) == 0 {
		var none T
		return none, false
	}
	i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
	taken := (*from)[i]
	*from = append((*from)[:i:i], (*from)[i+1:]...)
	return taken, true
}

// check is the promise: what clients may have started in any second is within
// the greatest budget in force in the last TTL.
func (f *fleet) check(t *rapid.T) {
	limit := 0
	for _, b := range f.budgets {
		if b.until.IsZero() || f.now.Sub(b.until) <= contract.ShareTTL {
			limit = max(limit, b.calls)
		}
	}
	sum := 0
	for _, c := range f.clients {
		sum += c.most(f.now)
	}
	if sum > limit {
		t.Fatalf("workers may start %d calls in a second, budget %d", sum, limit)
	}
}

func (f *fleet) deliver(t *rapid.T, r *request) {
	share, err := allot.Renew(f.state, f.now, r.ShareRequest)
	if err != nil {
		return
	}
	if share.Renew <= 0 || time.Duration(share.Renew) > contract.ShareTTL/3 {
		t.Fatalf("asked back in %v", share.Renew)
	}
	switch out := f.out(r.Worker); {
	case !share.Breaker.Open && (out || f.state.Breaker.Open), share.Breaker.Open && share.Calls > 0 && !share.Probe:
		t.Fatalf("out alone %v, out %v, and answered %+v", out, f.state.Breaker.Open, share)
	case share.Probe && !f.state.Breaker.Open: // its own
		if !out || f.now.Sub(r.client.probed) < 5*time.Second {
			t.Fatalf("out alone %v, a probe %v after the last", out, f.now.Sub(r.client.probed))
		}
		r.client.probed = f.now
	case share.Probe:
		if n := len(f.probes); n > 0 && f.now.Sub(f.probes[n-1]) < 5*time.Second {
			t.Fatalf("a probe %v after the last", f.now.Sub(f.probes[n-1]))
		}
		f.probes = append(f.probes, f.now)
	}
	if s := f.state; s.Breaker.Open && !s.FailingSince.IsZero() {
		for _, w := range s.Workers {
			if w.Worker != s.OpenedBy && w.Succeeded.Sub(s.FailingSince) > time.Second {
				t.Fatalf("out for all, although %s succeeded", w.Worker)
			}
		}
	}
	f.replies = append(f.replies, response{r, share})
}

// out reports whether upstream is out for the worker alone.
func (f *fleet) out(worker string) bool {
	return slices.ContainsFunc(f.state.Workers, func(w contract.BudgetWorker) bool { return w.Worker == worker && w.Out != nil })
}

func (f *fleet) receive(a response) {
	c := a.client
	if c.asking != a.request || c.silenced {
		return
	}
	c.asking = nil
	c.epoch, c.open = a.share.Breaker.Epoch, a.share.Breaker.Open
	use := contract.ShareUse
	if a.share.Probe {
		use = contract.ProbeUse
	}
	c.end(f.now)
	if until := a.asked.Add(use); until.After(f.now) && a.share.Calls > 0 {
		c.spans = append(c.spans, span{calls: a.share.Calls, from: f.now, until: until})
	}
}

// TestSharesNeverExceedTheBudget: whoever joins, leaves, is killed, is delayed,
// asks again; whatever is set, throttled, out, lost; and although the budget's run is
// continued, terminated or reset.
func TestSharesNeverExceedTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rps := rapid.SampledFrom([]int{1, 3, 10, 1000}).Draw(t, "rps")
		f := &fleet{now: epoch, state: allot.New(epoch), budgets: []span{{calls: rps, from: epoch}}}
		if rapid.Bool().Draw(t, "running for long") {
			f.now = f.now.Add(contract.ShareTTL)
		}
		for range rapid.IntRange(50, 300).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 20).Draw(t, "step"); step {
			case 0, 1:
				if f.living() < 5 {
					f.start(rps, t)
				}
			case 2, 3, 4, 5, 6:
				if len(f.clients) > 0 {
					c := f.clients[rapid.IntRange(0, len(f.clients)-1).Draw(t, "who")]
					if !c.silenced {
						f.ask(c, rps, t)
					}
				}
			case 7, 8, 9, 10:
				if r, ok := take(t, &f.sent); ok {
					f.deliver(t, r)
					if rapid.IntRange(0, 7).Draw(t, "twice") == 0 {
						f.sent = append(f.sent, r)
					}
				}
			case 11, 12, 13, 14:
				if a, ok := take(t, &f.replies); ok {
					f.receive(a)
				}
			case 15:
				f.round(rps, t)
			case 16:
				if rapid.IntRange(0, 3).Draw(t, "kill") == 0 && len(f.clients) > 0 {
					f.clients[rapid.IntRange(0, len(f.clients)-1).Draw(t, "killed")].silenced = true
				}
			case 17:
				if rapid.IntRange(0, 3).Draw(t, "order") > 0 {
					break
				}
				to := rapid.SampledFrom([]int{0, 1, 2, 7, 2000}).Draw(t, "set")
				allot.Set(f.state, f.now, to)
				f.budgets[len(f.budgets)-1].until = f.now
				f.budgets = append(f.budgets, span{calls: to, from: f.now})
			case 18:
				f.state = clone(t, f.state) // continued as new
			case 19:
				if rapid.IntRange(0, 3).Draw(t, "operator") == 0 { // terminated by hand, or reset: see workflow Budget
					f.state = allot.New(f.now)
					f.budgets[len(f.budgets)-1].until = f.now
					f.budgets = append(f.budgets, span{calls: rps, from: f.now})
				}
			case 20:
				if len(f.clients) > 0 {
					if c := f.clients[rapid.IntRange(0, len(f.clients)-1).Draw(t, "leaver")]; !c.silenced {
						f.leave(c, rps, t)
					}
				}
			}
			f.now = f.now.Add(rapid.SampledFrom(passing).Draw(t, "passes"))
			f.check(t)
		}
	})
}

func clone(t require.TestingT, s *contract.BudgetState) *contract.BudgetState {
	text, err := json.Marshal(s)
	require.NoError(t, err)
	copied := new(contract.BudgetState)
	require.NoError(t, json.Unmarshal(text, copied))
	return copied
}
