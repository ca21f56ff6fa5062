package service

import (
	"errors"
	"strconv"
	"time"

	"github.com/quiesce-io/quiesce/activities"
	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/process"
)

// Config are all settings of the worker.
type Config struct {
	Common     process.Common
	Slots      Slots
	Sync       activities.Config
	Upstream   upstream.Config
	Budget     budget.Config
	Store      store.Config
	Versioning Versioning
}

// Versioning says whether Temporal tells versions of the workers apart.
type Versioning struct {
	Enabled bool `env:"WORKER_VERSIONING" help:"Whether this build gets work only once worker versions use says so; see deploy/rollout.md. All workers of a pipeline alike, but for the change-over."`
}

// Slots bounds what a worker does at a time.
type Slots struct {
	Sync int `env:"SYNC_SLOTS" help:"Syncs at a time in this process. Few, so that a backlog waits in Temporal's queue, where priority works."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Common:   process.DefaultCommon("127.0.0.1:8082"),
		Slots:    Slots{Sync: 100},
		Sync:     activities.DefaultConfig(),
		Upstream: upstream.Default(),
		Budget:   budget.Default(),
		Store:    store.Default(),
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	faults := []error{
		c.Common.Validate(), c.Sync.Validate(),
		c.Upstream.Validate(), c.Budget.Validate(), c.Store.Validate(),
	}
	if c.Slots.Sync < 1 {
		faults = append(faults, config.Fault{Name: "SYNC_SLOTS", Value: strconv.Itoa(c.Slots.Sync), Problem: "must be at least 1"})
	}
	if c.Versioning.Enabled && process.Version == "dev" {
		faults = append(faults, config.Fault{Name: "WORKER_VERSIONING", Value: "true", Problem: "this binary has no version; build it with make build"})
	}
	return errors.Join(faults...)
}

// stopTimeout is how long a call and its write may still take once the worker
// has been told to stop.
func (c Config) stopTimeout() time.Duration {
	return min(c.Upstream.Timeout+c.Sync.Lease.Write, c.Common.ShutdownGrace)
}
