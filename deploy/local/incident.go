package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// knownKeys are the keys that do something.
const knownKeys = "wbohq"

const keysHelp = "Keys: w kill -9 the worker   b kill -9 the bridge   o upstream out for 10 s   h a hot account on/off   q stop.\n" +
	"After each it says what will happen, and then what did, in figures."

// hints say what would happen now.
func (d *demo) hints(l live) [][2]string {
	return [][2]string{
		{"kill the worker: w", fmt.Sprintf("%d changes wait in Temporal; calls go on in %s to %s", l.pending, d.opts.heartbeat, contract.ShareTTL)},
		{"kill the bridge: b", fmt.Sprintf("%d changes are read again after %s; their rows spare the calls", l.pending, d.opts.session)},
		{"other keys", "o upstream out for 10 s   h hot account on/off   q stop"},
	}
}

const (
	outageLasts = 10 * time.Second
	// hotPause is how long the hot account rests between its changes.
	hotPause   = 250 * time.Millisecond
	hotAccount = "account-0"
)

// incidents does what keys ask for. All of it is used by one goroutine.
type incidents struct {
	demo *demo
	note func(format string, args ...any)

	// disturbed is set once something was done that may cost further calls: one
	// that was under way is made again, one that was refused is repeated.
	disturbed bool
	endOutage func()           // nil while upstream answers
	outageEnd <-chan time.Time // nil while upstream answers
	coolDown  func() int       // nil while no account is hot; waits, and returns how often it changed
	hot       aftermath        // of the hot account
	latest    live             // as see was told last
	open      []*aftermath     // what is not over yet
}

// see follows what keys did, and tells of each when it is over.
func (i *incidents) see(l live) {
	i.latest = l
	i.open = slices.DeleteFunc(i.open, func(a *aftermath) bool {
		over := a.see(l, time.Now(), i.demo.opts.settleDelay)
		if over {
			i.note("%s", a.tell(l, time.Now(), true))
		}
		return over
	})
}

// follow begins to follow what a key does, for that long at least.
func (i *incidents) follow(what string, least time.Duration) {
	now := time.Now()
	i.open = append(i.open, &aftermath{what: what, at: now, due: now.Add(least), before: i.latest})
}

// press does what the key stands for, and reports whether it is to stop.
func (i *incidents) press(ctx context.Context, key byte) (stop bool, err error) {
	d := i.demo
	switch key {
	case 'w':
		i.follow("the kill of the worker", d.opts.heartbeat+d.opts.settleDelay)
		return false, i.restart(d.worker, fmt.Sprintf("No call is lost with it: Temporal hears no heartbeat for %s and gives what it had to the new one; "+
			"a call whose row was written is not made again.\nIts share of the call budget is free again %s after it last asked; until then the new one has what is left, or nothing.",
			d.opts.heartbeat, contract.ShareTTL))
	case 'b':
		i.follow("the kill of the bridge", d.opts.session+d.opts.settleDelay)
		return false, i.restart(d.bridge, fmt.Sprintf("After %s without a heartbeat Kafka gives its partitions to the new one, which reads again what was not "+
			"committed; the rows say what is covered, so that costs no second call.", d.opts.session))
	case 'o':
		if i.endOutage != nil {
			i.note("Upstream is out already.")
			return false, nil
		}
		i.disturbed = true
		i.endOutage = d.pipeline.Upstream.Inject("", upstream.Fault{Status: http.StatusServiceUnavailable})
		i.outageEnd = time.After(outageLasts)
		i.follow("the outage", outageLasts+d.opts.settleDelay)
		i.note("Upstream answers 503 to everybody for %s: the breaker opens, the backlog waits in Temporal, nobody is parked.", outageLasts)
	case 'h':
		i.toggleHot()
	case 'q':
		return true, nil
	case '\n', ' ':
	default:
		i.note("%s", keysHelp)
	}
	return false, nil
}

func (i *incidents) restart(p *stack.Process, what string) error {
	i.disturbed = true
	pid := p.PID()
	if err := errors.Join(p.Kill(), p.Start()); err != nil {
		return err
	}
	i.note("kill -9 %d (%s); started again as %d. %s", pid, p.Name, p.PID(), what)
	return nil
}

// recover ends the outage.
func (i *incidents) recover() {
	if i.endOutage != nil {
		i.endOutage()
		i.endOutage, i.outageEnd = nil, nil
		i.note("Upstream answers again: a probe closes the breaker, and the backlog drains at the full budget.")
	}
}

func (i *incidents) toggleHot() {
	if i.coolDown != nil {
		i.cool()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan int, 1)
	go func() {
		n := 0
		defer func() { changed <- n }()
		tick := time.NewTicker(hotPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// Its record outlives ctx: the change has been made.
				i.demo.generator.Change(context.WithoutCancel(ctx), hotAccount)
				n++
			}
		}
	}()
	i.hot = aftermath{at: time.Now(), before: i.latest}
	i.coolDown = func() int { cancel(); return <-changed }
	i.note("%s changes every %s now. A call serves all that come within %s of the first that is not served yet.", hotAccount, hotPause, i.demo.opts.window())
}

func (i *incidents) cool() {
	if i.coolDown == nil {
		return
	}
	changes := i.coolDown()
	i.coolDown = nil
	i.note("%s is like the others again. %s", hotAccount, i.hot.tellHot(i.latest, changes, time.Now()))
}

// end undoes what is still in force: nothing of it may outlast the changes.
func (i *incidents) end() {
	i.recover()
	i.cool()
}

// close tells of what is not over, after everything.
func (i *incidents) close() {
	for _, a := range i.open {
		i.note("%s", a.tell(i.latest, time.Now(), false))
	}
}
