package activities

import (
	"context"
	"log/slog"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/quiesce-io/quiesce/activities/health"
	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/activities/upstream"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Store keeps rows; [store.Store] is the one for Spanner. Another one must
// fence writes by CalledAt and Version, and recognise its own, as documented
// there. An error that matches [store.ErrRefused] is about this row; any other
// means that the store is out. All methods get a deadline.
type Store interface {
	Read(ctx context.Context, account string) (store.Row, error)
	Write(ctx context.Context, sync store.Sync) (contract.Outcome, error)
	// Unsettled keeps on record a call whose answer is not kept, and which changes
	// it lacks. Their times tell how long upstream takes; a store that does not
	// care does nothing.
	Unsettled(ctx context.Context, sync store.Sync, late []contract.Range) error
	// Discard keeps a decision on record; it may be called again with the same ID.
	Discard(ctx context.Context, d store.Discard) error
}

// Dependencies are what an attempt works with. All are required.
type Dependencies struct {
	Upstream upstream.Fetcher
	Store    Store
	Health   *health.Monitor // the budget, behind the breaker
	Metrics  telemetry.Metrics
	Log      *slog.Logger
}

// Activities are the activities of a worker.
type Activities struct {
	cfg  Config
	deps Dependencies

	shortLease sync.Once // complained about
}

// New returns the activities for a valid cfg.
func New(cfg Config, deps Dependencies) *Activities { return &Activities{cfg: cfg, deps: deps} }

// Register registers the activities under the names that workflows call them by.
func (a *Activities) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(a.Sync, activity.RegisterOptions{Name: contract.Sync})
	r.RegisterActivityWithOptions(a.RecordDiscard, activity.RegisterOptions{Name: contract.RecordDiscard})
}
