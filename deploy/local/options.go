package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/quiesce-io/quiesce/activities/budget"
	"github.com/quiesce-io/quiesce/deploy/local/load"
	"github.com/quiesce-io/quiesce/internal/config"
)

// pipelineOptions are the settings that demo and stack scale down alike.
type pipelineOptions struct {
	settleTime, settleDelay, maxClockSkew time.Duration
	upstreamRPS, partitions               int
	traffic                               load.Config
}

func (o *pipelineOptions) register(flags *flag.FlagSet) {
	o.traffic = load.Default()
	flags.DurationVar(&o.settleTime, "settle-time", 2*time.Second, "SETTLE_TIME: longest until a change can be read upstream; also the simulator's longest lag")
	flags.DurationVar(&o.settleDelay, "settle-delay", 3*time.Second, "SETTLE_DELAY: an account is read this long after its first change; not below settle-time + max-clock-skew")
	flags.DurationVar(&o.maxClockSkew, "max-clock-skew", 50*time.Millisecond, "MAX_CLOCK_SKEW: most that clocks may differ; added to settle-time")
	flags.IntVar(&o.upstreamRPS, "upstream-rps", 50, "UPSTREAM_RPS: calls a second that all workers together may make")
	flags.IntVar(&o.partitions, "partitions", 8, "partitions of the topic of changes")
	flags.IntVar(&o.traffic.Accounts, "accounts", o.traffic.Accounts, "number of accounts; fewer change more often each, and save more calls")
	flags.Uint64Var(&o.traffic.Seed, "seed", o.traffic.Seed, "seed of traffic and lags: the same seed makes the same changes")
	flags.Float64Var(&o.traffic.Hot, "hot", o.traffic.Hot, "share of all bursts that go to one account, 0 to 1")
}

// settle is S: what a change needs before a call may count as having seen it.
func (o pipelineOptions) settle() time.Duration { return o.settleTime + o.maxClockSkew }

// validate returns all faults at once.
func (o pipelineOptions) validate() error {
	errs := []error{o.traffic.Validate()}
	if o.settleTime < 0 {
		errs = append(errs, config.Fault{Name: "settle-time", Value: o.settleTime.String(), Problem: "must not be negative"})
	}
	if o.maxClockSkew <= 0 {
		errs = append(errs, config.Fault{Name: "max-clock-skew", Value: o.maxClockSkew.String(), Problem: "must be above 0: no two clocks agree"})
	}
	if o.settleDelay < o.settle() {
		errs = append(errs, config.Fault{Name: "settle-delay", Value: o.settleDelay.String(),
			Problem: fmt.Sprintf("must be at least settle-time + max-clock-skew = %s", o.settle())})
	}
	if o.upstreamRPS < 1 || o.upstreamRPS > budget.MaxRPS {
		errs = append(errs, config.Fault{Name: "upstream-rps", Value: fmt.Sprint(o.upstreamRPS), Problem: fmt.Sprintf("must be from 1 to %d", budget.MaxRPS)})
	}
	if o.partitions < 1 || o.partitions > 1000 {
		errs = append(errs, config.Fault{Name: "partitions", Value: fmt.Sprint(o.partitions), Problem: "must be from 1 to 1000"})
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w:\n%w", errUsage, err)
	}
	return nil
}

// env returns the settings for bridge and worker, as KEY=VALUE.
func (o pipelineOptions) env() []string {
	return []string{
		"SETTLE_TIME=" + o.settleTime.String(),
		"SETTLE_DELAY=" + o.settleDelay.String(),
		"MAX_CLOCK_SKEW=" + o.maxClockSkew.String(),
		fmt.Sprintf("UPSTREAM_RPS=%d", o.upstreamRPS),
	}
}
