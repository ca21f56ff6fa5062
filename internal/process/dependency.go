package process

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
)

const (
	// askEvery is how often a dependency is asked, askAgain how often one that is
	// out; askTimeout bounds one question, so that "out" is known within their sum.
	askEvery   = 5 * time.Second
	askAgain   = time.Second
	askTimeout = 4 * time.Second
)

// Dependency is one of the systems around the process, as it looks from here.
type Dependency struct {
	Name string `json:"name"` // temporal, kafka, spanner, upstream
	At   string `json:"at"`   // the setting that says where it is, with its value
	// OutSince is when it was first found not to answer, or to refuse; zero while
	// all is well.
	OutSince time.Time `json:"out_since,omitzero"`
	Error    string    `json:"error,omitempty"` // why, in one line
	// Ask returns nil if it answers as it should.
	Ask func(context.Context) error `json:"-"`
}

// TemporalDependency asks a Temporal that was dialled with r's interceptor.
func TemporalDependency(c client.Client, options client.Options, r *Refusals) Dependency {
	return Dependency{
		Name: "temporal", At: "TEMPORAL_ADDRESS=" + options.HostPort + ", TEMPORAL_NAMESPACE=" + options.Namespace,
		Ask: func(ctx context.Context) error {
			if _, err := c.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
				return err
			}
			return r.Err()
		},
	}
}

// Dependencies keeps asking what the process depends on. Nothing is decided by
// the answers: each part of the process bears an outage by itself. They are for
// people who want to know which of them is out. The zero value has none.
type Dependencies struct {
	logger *slog.Logger

	mu  sync.Mutex
	all []Dependency
}

// NewDependencies returns Dependencies that take all to be well until Run.
func NewDependencies(logger *slog.Logger, all ...Dependency) *Dependencies {
	return &Dependencies{logger: logger, all: all}
}

// Run asks until ctx is done. A dependency that hangs does not hold up the rest.
func (d *Dependencies) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range d.all {
		wg.Go(func() { d.watch(ctx, i) })
	}
	wg.Wait()
	return nil
}

func (d *Dependencies) watch(ctx context.Context, i int) {
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		err := d.all[i].Ask(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		next := askEvery
		if err != nil {
			next = askAgain
		}
		d.note(i, err, time.Now())
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// note keeps the answer, and logs it if it is another than before.
func (d *Dependencies) note(i int, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := &d.all[i]
	switch {
	case err != nil:
		one.Error = strings.Join(strings.Fields(err.Error()), " ")
		if one.OutSince.IsZero() {
			one.OutSince = now
			d.logger.Error(one.Name+" is out", "at", one.At, "error", one.Error)
		}
	case !one.OutSince.IsZero():
		d.logger.Info(one.Name+" answers again", "at", one.At, "after", now.Sub(one.OutSince).Round(time.Second))
		one.OutSince, one.Error = time.Time{}, ""
	}
}

// Snapshot returns them as they were found last.
func (d *Dependencies) Snapshot() []Dependency {
	if d == nil {
		return []Dependency{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Dependency{}, d.all...)
}
