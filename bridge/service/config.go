package service

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/bridge/dispatch"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/internal/process"
)

const (
	// handOverOverhead is what a signal costs beyond its timeout, at most, when the
	// lease of the hand-over is derived.
	handOverOverhead = 100 * time.Millisecond
	// turnOverhead is what a turn costs beyond the commit it waits for.
	turnOverhead = time.Second
)

// Config are all settings of the bridge.
type Config struct {
	Common   process.Common
	Settle   config.Settle
	Lease    lease.Config
	Loop     Loop
	Kafka    consumer.Config
	Buffer   buffer.Config
	Dispatch dispatch.Config
	Watch    watch.Config
}

// Loop is the lease of the bridge's own loops.
type Loop struct {
	Lease time.Duration `env:"LOOP_LEASE" help:"A loop of the bridge that has not turned for this long is stuck: the bridge leaves the group and exits."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Common:   process.DefaultCommon("127.0.0.1:8081"),
		Settle:   config.DefaultSettle(),
		Lease:    lease.DefaultConfig(),
		Loop:     Loop{Lease: 30 * time.Second},
		Kafka:    consumer.DefaultConfig(),
		Buffer:   buffer.DefaultConfig(),
		Dispatch: dispatch.DefaultConfig(),
		Watch:    watch.DefaultConfig(),
	}
}

// derived fills what follows from other settings.
func (c Config) derived() Config {
	c.Kafka = Kafka(c.Common, c.Kafka)
	return c
}

// Kafka returns k with what follows from the common settings.
func Kafka(c process.Common, k consumer.Config) consumer.Config {
	k.StartTimeout = c.StartTimeout
	k.Group = cmp.Or(k.Group, c.Pipeline, "unnamed") // Validate asks for PIPELINE
	return k
}

// HandOver is the hand-over of a full buffer to Temporal.
func (c Config) HandOver() lease.Batch {
	return lease.Batch{
		Size: c.Buffer.Records, Concurrency: c.Dispatch.Executors,
		Timeout: c.Dispatch.SignalTimeout, Overhead: handOverOverhead,
	}
}

// CommitterLease is the lease of the committer, which turns once in
// COMMIT_INTERVAL.
func (c Config) CommitterLease() time.Duration { return c.Loop.Lease + c.Kafka.CommitInterval }

// WatcherLease is how long a watcher may hang unseen: its LOOP_LEASE counts from
// when a look has hung for longer than any may take.
func (c Config) WatcherLease() time.Duration { return c.Loop.Lease + watch.LongestLook }

// Validate returns every fault, joined, relations between components included.
func (c Config) Validate() error {
	c = c.derived()
	faults := []error{
		c.Common.Validate(), c.Settle.Validate(), c.Lease.Validate(),
		c.Kafka.Validate(), c.Buffer.Validate(), c.Dispatch.Validate(), c.Watch.Validate(),
	}
	if errors.Join(faults...) != nil {
		return errors.Join(faults...)
	}
	return c.validateRelations()
}

// ValidateLeases returns every fault of the leases and of what they are derived
// from: all of them make Validate fail as well.
func (c Config) ValidateLeases() error {
	if err := errors.Join(c.Lease.Validate(), c.Buffer.Validate(), c.Dispatch.Validate()); err != nil {
		return err
	}
	return c.validateRelations()
}

// validateRelations returns the faults of valid settings that do not go together.
func (c Config) validateRelations() error {
	var faults []error
	// A lane may wait for three answers before it turns: how a run began, the
	// signal, and how the run began that took it.
	if least := 4 * c.Dispatch.SignalTimeout; c.Loop.Lease < least {
		faults = append(faults, config.Fault{Name: "LOOP_LEASE", Value: c.Loop.Lease.String(),
			Problem: fmt.Sprintf("must be at least %s, four times SIGNAL_TIMEOUT: a lane may wait that long for Temporal", least)})
	}
	if least := consumer.CommitTimeout + turnOverhead; c.Loop.Lease < least {
		faults = append(faults, config.Fault{Name: "LOOP_LEASE", Value: c.Loop.Lease.String(),
			Problem: fmt.Sprintf("must be at least %s: a loop may wait %s for a commit", least, consumer.CommitTimeout)})
	}
	if c.CommitterLease() > c.Lease.MaxDetectionDelay {
		faults = append(faults, config.Fault{Name: "LOOP_LEASE", Value: c.Loop.Lease.String(),
			Problem: fmt.Sprintf("exceeds MAX_DETECTION_DELAY=%s less COMMIT_INTERVAL=%s", c.Lease.MaxDetectionDelay, c.Kafka.CommitInterval)})
	}
	if c.WatcherLease() > c.Lease.MaxDetectionDelay {
		faults = append(faults, config.Fault{Name: "LOOP_LEASE", Value: c.Loop.Lease.String(),
			Problem: fmt.Sprintf("exceeds MAX_DETECTION_DELAY=%s less the %s after which a look of the watcher counts as hung", c.Lease.MaxDetectionDelay, watch.LongestLook)})
	}
	handOver := c.HandOver()
	if handOver.Lease() > c.Lease.MaxDetectionDelay {
		faults = append(faults, config.Fault{Name: "BUFFER_RECORDS", Value: strconv.Itoa(c.Buffer.Records),
			Problem: fmt.Sprintf("handing a full buffer over may take %s, longer than MAX_DETECTION_DELAY=%s; set it to %d or less, or raise EXECUTORS",
				handOver.Lease(), c.Lease.MaxDetectionDelay, handOver.Largest(c.Lease.MaxDetectionDelay))})
	}
	return errors.Join(faults...)
}

// calmSession is the session timeout below which pauses that are no failure,
// for garbage collection, throttling or a jitter of the network, may cost a
// member its place: it allows for three heartbeats that are lost or late.
const calmSession = 10 * time.Second

// Warnings returns what is allowed and probably not wanted, in one line each.
func (c Config) Warnings() []string {
	var warnings []string
	if c.Kafka.SessionTimeout < calmSession {
		warnings = append(warnings, fmt.Sprintf(
			"KAFKA_SESSION_TIMEOUT=%s: a pause for garbage collection or a jitter of the network may take this member out of the group and rebalance it each time; %s or more is calm. That a loop is stuck shows by LOOP_LEASE, not by this",
			c.Kafka.SessionTimeout, calmSession))
	}
	// A change that may share its account's call is made D − S after the first at
	// the latest, so it has S to reach the run.
	late, known := c.Dispatch.Linger+c.Dispatch.SignalInterval, dispatch.DefaultConfig()
	if late > max(c.Settle.Total(), known.Linger+known.SignalInterval) {
		warnings = append(warnings, fmt.Sprintf(
			"LINGER=%s and SIGNAL_INTERVAL=%s: a change may reach its account's run %s after it was made, too late for the call it could have shared; SETTLE_TIME + MAX_CLOCK_SKEW = %s is the most that costs no calls",
			c.Dispatch.Linger, c.Dispatch.SignalInterval, late, c.Settle.Total()))
	}
	return warnings
}
