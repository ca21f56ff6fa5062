package lease

import (
	"errors"
	"strconv"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Config are the timeouts from which the leases of a sync are derived. Bridge
// and worker should agree on them: the bridge sends the leases, the worker lives
// by the timeouts.
type Config struct {
	RowCheck          time.Duration `env:"ROW_CHECK_TIMEOUT" help:"Longest that reading the account's row may take."`
	PermitWait        time.Duration `env:"PERMIT_WAIT" help:"Longest that a sync waits in its slot for a permit to call upstream, before it is handed back."`
	Upstream          time.Duration `env:"UPSTREAM_TIMEOUT" help:"Longest that the upstream call may take."`
	Write             time.Duration `env:"WRITE_TIMEOUT" help:"Longest that writing the row may take."`
	Heartbeat         time.Duration `env:"HEARTBEAT_TIMEOUT" help:"A worker that was silent for this long is taken for dead."`
	ParkAfter         int           `env:"PARK_AFTER" help:"Failures in a row, while other accounts succeed, that park an account."`
	MaxDetectionDelay time.Duration `env:"MAX_DETECTION_DELAY" help:"Longest that anything stuck may stay unseen; no lease may exceed it."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		RowCheck: 2 * time.Second, PermitWait: 10 * time.Second, Upstream: 2 * time.Second, Write: 5 * time.Second,
		Heartbeat: 10 * time.Second, ParkAfter: 5, MaxDetectionDelay: 5 * time.Minute,
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	for _, timeout := range []struct {
		name  string
		value time.Duration
	}{
		{"ROW_CHECK_TIMEOUT", c.RowCheck}, {"PERMIT_WAIT", c.PermitWait}, {"UPSTREAM_TIMEOUT", c.Upstream},
		{"WRITE_TIMEOUT", c.Write}, {"MAX_DETECTION_DELAY", c.MaxDetectionDelay},
	} {
		if timeout.value <= 0 {
			faults = append(faults, config.Fault{Name: timeout.name, Value: timeout.value.String(), Problem: "must be positive: nothing may wait for ever"})
		}
	}
	if c.Heartbeat < time.Second {
		faults = append(faults, config.Fault{Name: "HEARTBEAT_TIMEOUT", Value: c.Heartbeat.String(), Problem: "must be at least 1s"})
	}
	if c.ParkAfter < 2 {
		faults = append(faults, config.Fault{Name: "PARK_AFTER", Value: strconv.Itoa(c.ParkAfter), Problem: "must be at least 2: one failure says nothing of whose it is"})
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return c.Account().Detectable(c.MaxDetectionDelay)
}

// Account returns what bounds a failing account.
func (c Config) Account() Account {
	return Account{
		Attempt:   Attempt{RowCheck: c.RowCheck, PermitWait: c.PermitWait, Upstream: c.Upstream, Write: c.Write},
		ParkAfter: c.ParkAfter,
	}
}

// Settings returns what travels with every signal.
func (c Config) Settings(settle config.Settle) contract.Settings {
	attempt := c.Account().Attempt.Lease()
	return contract.Settings{
		Settle:       contract.Duration(settle.Total()),
		Delay:        contract.Duration(settle.Delay),
		AttemptLease: contract.Duration(attempt),
		Heartbeat:    contract.Duration(min(c.Heartbeat, attempt)),
		ParkAfter:    c.ParkAfter,
	}
}
