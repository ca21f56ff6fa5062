package budget

import (
	"strconv"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Config holds the settings of a budget.
type Config struct {
	// UpstreamRPS has no default: how much of upstream's ceiling is ours is
	// nothing that a program could guess. Unset is -1.
	UpstreamRPS int `env:"UPSTREAM_RPS" help:"Upstream calls that the whole fleet may start in any one second, retries included; required; 0 pauses all calls. What worker budget set ordered holds until this is changed."`
}

// Default returns a Config in which UPSTREAM_RPS is still missing.
func Default() Config { return Config{UpstreamRPS: -1} }

// MaxRPS bounds the memory of the log: one instant per call of a second.
const MaxRPS = 100_000

// Validate returns every fault, joined.
func (c Config) Validate() error {
	switch {
	case c.UpstreamRPS == -1:
		return config.Fault{Name: "UPSTREAM_RPS", Problem: "is required: the calls per second that upstream grants this pipeline (0 pauses)"}
	case c.UpstreamRPS < 0 || c.UpstreamRPS > MaxRPS:
		return config.Fault{Name: "UPSTREAM_RPS", Value: strconv.Itoa(c.UpstreamRPS), Problem: "must be from 0 (pause) to " + strconv.Itoa(MaxRPS)}
	}
	return nil
}
