package activities

import (
	"errors"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/lease"
)

// Config holds the times that an attempt may take, from which its lease is
// derived.
type Config struct {
	Lease lease.Config
	// MaxClockSkew is part of the settle time, too: a row whose call lies no
	// further in the future than this is taken at its word.
	MaxClockSkew time.Duration `env:"MAX_CLOCK_SKEW" help:"Most that clocks may differ; a row called further in the future is waited for."`
}

// DefaultConfig returns the settings that apply if none are given.
func DefaultConfig() Config {
	return Config{Lease: lease.DefaultConfig(), MaxClockSkew: config.DefaultSettle().MaxClockSkew}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	faults := []error{c.Lease.Validate()}
	if c.MaxClockSkew <= 0 {
		faults = append(faults, config.Fault{Name: "MAX_CLOCK_SKEW", Value: c.MaxClockSkew.String(), Problem: "must be positive: no two clocks agree"})
	}
	return errors.Join(faults...)
}
