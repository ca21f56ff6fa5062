package telemetry

import "time"

// Metrics is what a component reports to. Names come without the "quiesce."
// prefix; tags are "key:value" and never hold an account.
type Metrics interface {
	Count(name string, n int64, tags ...string)
	Gauge(name string, value float64, tags ...string)
	Timing(name string, d time.Duration, tags ...string)
}

// Discard reports nothing.
var Discard Metrics = discard{}

type discard struct{}

func (discard) Count(string, int64, ...string)          {}
func (discard) Gauge(string, float64, ...string)        {}
func (discard) Timing(string, time.Duration, ...string) {}
