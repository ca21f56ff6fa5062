package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// served tells what the calls so far were good for.
func (d *demo) served() []served {
	return attribute(d.generator.Changes(), d.pipeline.Upstream.Calls(), d.opts.settle())
}

// window is how long others may join an account's first change.
func (o demoOptions) window() time.Duration {
	return (o.settleDelay - o.settle()).Round(10 * time.Millisecond)
}

// opening says what is about to happen.
func (d *demo) opening() string {
	o, ui := d.opts, ""
	if t := d.stack.Temporal; t.UI != "" {
		ui = fmt.Sprintf("\nIn Temporal's UI each account is a workflow, %s/account/account-1 and so on:\n  %s/namespaces/%s/workflows",
			d.pipeline.Name, t.UI, t.Namespace)
	}
	return fmt.Sprintf(`%d accounts in a simulated system of record change %g times a second, in bursts of 1 to 4.
Each change is announced on Kafka, and can be read only after up to %s (the settle time).
So each account is read once, %s after its first change, for all changes of the %s in
which others may join. That is where calls are saved; changes farther apart need one each.
Status pages, live: bridge %s  worker %s%s
`,
		o.traffic.Accounts, o.traffic.Rate, o.settleTime, o.settleDelay, o.window(),
		pageOf(d.bridge.StatusURL), pageOf(d.worker.StatusURL), ui)
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

// example tells of one call that served several changes, and where Temporal's UI
// shows that; nothing if there is none yet.
func (d *demo) example(ctx context.Context) string {
	s, found := bestShared(d.served(), time.Now().Add(-5*time.Second))
	if !found {
		return ""
	}
	text := fmt.Sprintf("%s changed %d times within %.1f s and was read once.", s.call.Account, s.changes, s.over.Seconds())
	if link := d.link(ctx, s.call.Account); link != "" {
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
