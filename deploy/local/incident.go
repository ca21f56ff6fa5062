package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// knownKeys are the keys that do something.
const knownKeys = "wbohq"

const keysHelp = "Keys: w kill -9 the worker   b kill -9 the bridge   o upstream out for 10 s   h a hot account on/off   q stop"

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
	coolDown  func()           // nil while no account is hot; waits
}

// press does what the key stands for, and reports whether it is to stop.
func (i *incidents) press(ctx context.Context, key byte) (stop bool, err error) {
	d := i.demo
	switch key {
	case 'w':
		return false, i.restart(d.worker, fmt.Sprintf("No call is lost with it: Temporal hears no heartbeat for %s and gives what it had to the new one; "+
			"a call whose row was written is not made again.", d.opts.heartbeat))
	case 'b':
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
		i.coolDown()
		i.coolDown = nil
		i.note("%s is like the others again.", hotAccount)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(hotPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				i.demo.generator.Change(ctx, hotAccount)
			}
		}
	}()
	i.coolDown = func() { cancel(); <-ended }
	i.note("%s changes every %s now. All that settles together shares a call, so the saved share rises.", hotAccount, hotPause)
}

// end undoes what is still in force: nothing of it may outlast the changes.
func (i *incidents) end() {
	i.recover()
	if i.coolDown != nil {
		i.coolDown()
		i.coolDown = nil
	}
}
