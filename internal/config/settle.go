package config

import (
	"errors"
	"time"
)

// Settle says when a change can be read upstream.
type Settle struct {
	Time         time.Duration `env:"SETTLE_TIME" help:"Longest time until a change can be read upstream; a change is covered only by a call made this long, and MAX_CLOCK_SKEW, after it."`
	Delay        time.Duration `env:"SETTLE_DELAY" help:"The call is made this long after an account's first pending change. What it exceeds SETTLE_TIME + MAX_CLOCK_SKEW by is the window in which further changes join the call."`
	MaxClockSkew time.Duration `env:"MAX_CLOCK_SKEW" help:"Most that clocks may differ; the bridge admits nothing while its clock is off by more."`
}

// DefaultSettle returns the defaults.
func DefaultSettle() Settle {
	return Settle{Time: 20 * time.Second, Delay: 30 * time.Second, MaxClockSkew: time.Second}
}

// Total is S: the settle time with the clock skew.
func (s Settle) Total() time.Duration { return s.Time + s.MaxClockSkew }

// Validate returns every fault, joined.
func (s Settle) Validate() error {
	var faults []error
	if s.Time < 0 {
		faults = append(faults, Fault{"SETTLE_TIME", s.Time.String(), "must not be negative"})
	}
	if s.MaxClockSkew <= 0 {
		faults = append(faults, Fault{"MAX_CLOCK_SKEW", s.MaxClockSkew.String(), "must be positive: no two clocks agree"})
	}
	if s.Delay < s.Total() {
		faults = append(faults, Fault{"SETTLE_DELAY", s.Delay.String(),
			"must be at least SETTLE_TIME + MAX_CLOCK_SKEW = " + s.Total().String() + ", or no call would cover the change it is made for"})
	}
	return errors.Join(faults...)
}
