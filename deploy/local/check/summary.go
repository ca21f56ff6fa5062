package check

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/upstream"
)

// Observed is everything that is known about a run once it has drained.
type Observed struct {
	Changes []Made
	Calls   []upstream.Call
	Truth   map[string]int64
	Rows    []Row
	Syncs   []Sync
	// Uncommitted is the consumer group's lag, summed over partitions.
	Uncommitted int64
	// DeadLetters is the number of records in the dead-letter topic;
	// DeadLettered are the accounts in them.
	DeadLetters  int64
	DeadLettered map[string]bool
	// Parked are the accounts that are parked.
	Parked map[string]bool
	// Settle is S with the clock skew in it, Delay is D.
	Settle, Delay time.Duration
}

// Summary is what a run comes down to. Its JSON fields are a contract.
type Summary struct {
	Changes           int     `json:"changes"`
	Calls             int     `json:"calls"`
	SavedRatio        float64 `json:"saved_ratio"`
	OptimalCalls      int     `json:"optimal_calls"`
	Accounts          int     `json:"accounts"`
	StaleAccounts     int     `json:"stale_accounts"`
	LostChanges       int     `json:"lost_changes"`
	Uncommitted       int64   `json:"uncommitted"`
	MaxCallsPerSecond int     `json:"max_calls_per_second"`
	DeadLetters       int64   `json:"dead_letters"`
	Parked            int     `json:"parked"`
	StalenessP50      int64   `json:"staleness_p50_ms"`
	StalenessP99      int64   `json:"staleness_p99_ms"`
}

// Summarize judges a run.
func Summarize(o Observed) Summary {
	starts := make([]time.Time, len(o.Calls))
	for i, call := range o.Calls {
		starts[i] = call.Start
	}
	p50, p99 := Staleness(o.Syncs)
	excused := func(account string) bool { return o.DeadLettered[account] || o.Parked[account] }
	return Summary{
		Changes:           len(o.Changes),
		Calls:             len(o.Calls),
		SavedRatio:        SavedRatio(len(o.Changes), len(o.Calls)),
		OptimalCalls:      OptimalCalls(o.Syncs, o.Settle, o.Delay),
		Accounts:          len(o.Truth),
		StaleAccounts:     len(Stale(o.Rows, o.Truth)),
		LostChanges:       len(Lost(o.Changes, o.Rows, o.Settle, excused)),
		Uncommitted:       o.Uncommitted,
		MaxCallsPerSecond: MaxPerSecond(starts),
		DeadLetters:       o.DeadLetters,
		Parked:            len(o.Parked),
		StalenessP50:      p50.Milliseconds(),
		StalenessP99:      p99.Milliseconds(),
	}
}

// SavedRatio returns the share of changes that needed no call of their own, to
// four digits; 0 where there were none.
func SavedRatio(changes, calls int) float64 {
	if changes == 0 {
		return 0
	}
	return math.Round((1-float64(calls)/float64(changes))*1e4) / 1e4
}

// Err returns nil for a run that kept its promises, else an error that names
// each one broken, in one line.
func (s Summary) Err() error {
	var broken []string
	if s.LostChanges > 0 {
		broken = append(broken, fmt.Sprintf("lost_changes is %d, not 0", s.LostChanges))
	}
	if s.StaleAccounts > 0 {
		broken = append(broken, fmt.Sprintf("stale_accounts is %d, not 0", s.StaleAccounts))
	}
	if s.Uncommitted > 0 {
		broken = append(broken, fmt.Sprintf("uncommitted is %d, not 0", s.Uncommitted))
	}
	if s.Calls > s.OptimalCalls {
		broken = append(broken, fmt.Sprintf("calls are %d, more than the optimal %d", s.Calls, s.OptimalCalls))
	}
	if len(broken) == 0 {
		return nil
	}
	return fmt.Errorf("promises broken: %s", strings.Join(broken, "; "))
}
