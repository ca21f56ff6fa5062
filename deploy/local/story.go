package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// opening says what is about to happen.
func (d *demo) opening() string {
	o := d.opts
	return fmt.Sprintf(`%d accounts in a simulated system of record change %g times a second, in bursts of 1 to 4.
Each change is announced on Kafka, and can be read only after up to %s (the settle time).
So each account is read once, %s after its first change, for all changes of the %s in
which others may join. That is where calls are saved; changes farther apart need one each.
Status pages: bridge %s  worker %s
`,
		o.traffic.Accounts, o.traffic.Rate, o.settleTime, o.settleDelay, (o.settleDelay - o.settle()).Round(10*time.Millisecond),
		pageOf(d.bridge.StatusURL), pageOf(d.worker.StatusURL))
}

// pageOf returns the page that shows the status at the URL.
func pageOf(status string) string {
	page, err := url.Parse(status)
	if err != nil {
		return status
	}
	page.Path = "/"
	return page.String()
}

// shared is one call that served several changes of an account.
type shared struct {
	account string
	changes int
	over    time.Duration // from the first change to the last
}

// bestShared returns the call that served the most changes, of the answered ones
// since the given time; of several the latest.
func bestShared(changes []load.Change, calls []upstream.Call, settle time.Duration, since time.Time) (best shared, found bool) {
	served := map[string]int{} // changes of the account that earlier calls covered
	byAccount := map[string][]time.Time{}
	for _, c := range changes {
		byAccount[c.Account] = append(byAccount[c.Account], c.At)
	}
	for _, call := range calls {
		if call.Status != http.StatusOK {
			continue
		}
		times, from := byAccount[call.Account], served[call.Account]
		to := from
		for to < len(times) && !times[to].Add(settle).After(call.Start) {
			to++
		}
		served[call.Account] = to
		if n := to - from; n >= 2 && n >= best.changes && call.Start.After(since) {
			best, found = shared{account: call.Account, changes: n, over: times[to-1].Sub(times[from])}, true
		}
	}
	return best, found
}

// example tells of one call that served several changes, and where Temporal's UI
// shows that; nothing if there is none yet.
func (d *demo) example(ctx context.Context) string {
	s, found := bestShared(d.generator.Changes(), d.pipeline.Upstream.Calls(), d.opts.settle(), time.Now().Add(-5*time.Second))
	if !found {
		return ""
	}
	text := fmt.Sprintf("%s changed %d times within %.1f s and was read once.", s.account, s.changes, s.over.Seconds())
	if link := d.link(ctx, s.account); link != "" {
		text += " Its workflow; each signal is a batch of changes, the activity is the call:\n  " + link
	}
	return text
}

// link returns where Temporal's UI shows the account's latest run; nothing where
// there is no UI or no run.
func (d *demo) link(ctx context.Context, account string) string {
	t := d.stack.Temporal
	if t.UI == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{HostPort: t.Address, Namespace: t.Namespace, Logger: quiet{}})
	if err != nil {
		return ""
	}
	defer c.Close()
	id := contract.AccountWorkflowID(d.pipeline.Name, account)
	run, err := c.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s/namespaces/%s/workflows/%s/%s/history", t.UI, t.Namespace, url.PathEscape(id), run.GetWorkflowExecutionInfo().GetExecution().GetRunId())
}

// quiet keeps the SDK from logging on the terminal.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
