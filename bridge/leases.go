package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quiesce-io/quiesce/bridge/service"
	"github.com/quiesce-io/quiesce/bridge/watch"
	"github.com/quiesce-io/quiesce/internal/lease"
	"github.com/quiesce-io/quiesce/internal/process"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// row is one lease as it is printed.
type row struct {
	Name         string  `json:"name"`
	Derivation   string  `json:"derivation"`
	Bound        string  `json:"bound,omitempty"` // empty where the lease is not a bound with safety
	BoundSeconds float64 `json:"bound_seconds,omitempty"`
	Lease        string  `json:"lease"`
	LeaseSeconds float64 `json:"lease_seconds"`
	Passes       bool    `json:"passes"`
	Lever        string  `json:"lever,omitempty"` // what would make it pass
}

func printLeases(w io.Writer, settings service.Config, batch lease.Batch, asJSON bool) error {
	limit := settings.Lease.MaxDetectionDelay
	var rows []row
	if batch.Size != 0 {
		if batch.Size < 1 || batch.Concurrency < 1 || batch.Timeout <= 0 || batch.Overhead < 0 {
			return process.UsageError{Err: errors.New("--batch and --concurrency must be at least 1, --timeout positive and --overhead not negative")}
		}
		rows = []row{batchRow("batch", batch, limit)}
	} else {
		account := settings.Lease.Account()
		rows = []row{
			batchRow("hand-over of a full buffer", settings.HandOver(), limit),
			attemptRow(account.Attempt, limit),
			accountRow(account, limit),
			leaseRow("loop", "LOOP_LEASE", "lower LOOP_LEASE", settings.Loop.Lease, limit),
			leaseRow("committer", fmt.Sprintf("%s LOOP_LEASE + %s COMMIT_INTERVAL", settings.Loop.Lease, settings.Kafka.CommitInterval),
				"lower LOOP_LEASE or COMMIT_INTERVAL", settings.CommitterLease(), limit),
			leaseRow("watcher", fmt.Sprintf("%s LOOP_LEASE + %s longest look", settings.Loop.Lease, watch.LongestLook),
				"lower LOOP_LEASE", settings.WatcherLease(), limit),
		}
	}
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(map[string]any{"max_detection_delay_seconds": limit.Seconds(), "leases": rows}); err != nil {
			return err
		}
	} else {
		for _, r := range rows {
			fmt.Fprintln(w, r.Name)
			if r.Bound != "" {
				fmt.Fprintf(w, "  bound  %s = %s\n  lease  %s = bound x %v\n", r.Bound, r.Derivation, r.Lease, lease.Safety)
			} else {
				fmt.Fprintf(w, "  lease  %s = %s\n", r.Lease, r.Derivation)
			}
			if r.Passes {
				fmt.Fprintf(w, "  passes MAX_DETECTION_DELAY %s\n", seconds(limit))
			} else {
				fmt.Fprintf(w, "  over   MAX_DETECTION_DELAY %s: %s\n", seconds(limit), r.Lever)
			}
		}
	}
	if batch.Size == 0 {
		return settings.ValidateLeases()
	}
	for _, r := range rows {
		if !r.Passes {
			return fmt.Errorf("%s: %s is over MAX_DETECTION_DELAY %s: %s", r.Name, r.Lease, seconds(limit), r.Lever)
		}
	}
	return nil
}

func batchRow(name string, b lease.Batch, limit time.Duration) row {
	return boundRow(name, fmt.Sprintf("ceil(%d / %d) x (%s + %s)", b.Size, b.Concurrency, b.Timeout, b.Overhead),
		fmt.Sprintf("batch <= %d would pass", b.Largest(limit)), b.Bound(), b.Lease(), limit)
}

func attemptRow(a lease.Attempt, limit time.Duration) row {
	derivation := fmt.Sprintf("%s last sleep + %s row check + %s permit wait + %s upstream + %s write",
		lease.LastSleep, a.RowCheck, a.PermitWait, a.Upstream, a.Write)
	return boundRow("attempt", derivation, "shorten one of its timeouts", a.Bound(), a.Lease(), limit)
}

func accountRow(a lease.Account, limit time.Duration) row {
	derivation := fmt.Sprintf("%d PARK_AFTER x (%s attempt lease + %s backoff)", a.ParkAfter, a.Attempt.Lease(), contract.MaxBackoff)
	return leaseRow("account", derivation, "lower PARK_AFTER or shorten the attempt", a.Lease(), limit)
}

func boundRow(name, derivation, lever string, bound, total, limit time.Duration) row {
	r := leaseRow(name, derivation, lever, total, limit)
	r.Bound, r.BoundSeconds = seconds(bound), bound.Seconds()
	return r
}

func leaseRow(name, derivation, lever string, total, limit time.Duration) row {
	r := row{
		Name: name, Derivation: derivation,
		Lease: seconds(total), LeaseSeconds: total.Seconds(),
		Passes: total <= limit,
	}
	if !r.Passes {
		r.Lever = lever
	}
	return r
}

// seconds prints whole and fractional seconds, the unit of the settings' limits.
func seconds(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }
