package activities

import (
	"errors"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// LastSleep is how much of a wait an attempt sleeps out itself. Anything longer
// it hands back: a retry costs Temporal some writes, a sleep holds a slot.
const LastSleep = 500 * time.Millisecond

// Config holds the times that an attempt may take; together with LastSleep and
// the upstream timeout they make up the attempt lease.
type Config struct {
	// PermitWait is long enough for a burst and short enough to give the slot
	// to somebody else in an outage.
	PermitWait      time.Duration `env:"PERMIT_WAIT" help:"Longest time an attempt waits for a permit before it is handed back to Temporal."`
	RowCheckTimeout time.Duration `env:"ROW_CHECK_TIMEOUT" help:"Longest time to read an account's row before the call."`
	WriteTimeout    time.Duration `env:"WRITE_TIMEOUT" help:"Longest time to write an account's row after the call, retries included."`
	// MaxClockSkew is part of the settle time, too: a row whose call lies no
	// further in the future than this is taken at its word.
	MaxClockSkew time.Duration `env:"MAX_CLOCK_SKEW" help:"How far the clocks involved may differ."`
}

// DefaultConfig returns the settings that apply if none are given.
func DefaultConfig() Config {
	return Config{
		PermitWait: 10 * time.Second, RowCheckTimeout: 2 * time.Second,
		WriteTimeout: 5 * time.Second, MaxClockSkew: time.Second,
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	check := func(name string, d, least, most time.Duration) {
		if d < least || d > most {
			faults = append(faults, config.Fault{Name: name, Value: d.String(), Problem: "must be from " + least.String() + " to " + most.String()})
		}
	}
	check("PERMIT_WAIT", c.PermitWait, time.Millisecond, 5*time.Minute)
	check("ROW_CHECK_TIMEOUT", c.RowCheckTimeout, time.Millisecond, time.Minute)
	check("WRITE_TIMEOUT", c.WriteTimeout, time.Millisecond, time.Minute)
	check("MAX_CLOCK_SKEW", c.MaxClockSkew, 0, time.Minute)
	return errors.Join(faults...)
}
