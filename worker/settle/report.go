// Package settle tells from the sync log how long upstream takes until a change
// can be read.
//
// What it can know is bounded by what was tried. A call proves something about a
// change only if both carry a version. If the answer was too old, the change took
// longer than its age at that call; if it was new enough, it took at most its age
// then. Nobody calls before the settle time has passed, so of a change that was
// readable at the first call it is unknown how much sooner it was. The report
// never claims that a shorter settle time would do, except where somebody tried.
package settle

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Call is what one row of the sync log says.
type Call struct {
	Account  string
	CalledAt time.Time
	// Version is that of the answer.
	Version contract.Version
	// Unsettled says that the answer was too old for changes, the newest of which
	// was of Newest.
	Unsettled bool
	Newest    time.Time
	// Covered are the changes that the answer covers.
	Covered []contract.Range
}

// Percentiles of ages, in seconds.
type Percentiles struct {
	Changes int     `json:"changes"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// Report is what is known of upstream's lag.
type Report struct {
	Since time.Time `json:"since"`
	// Calls are those whose answer had a version; Early of them were too old.
	Calls int `json:"calls"`
	Early int `json:"early"`
	// AtMost is about all changes with a version: their age at the first answer
	// that had them.
	AtMost Percentiles `json:"at_most"`
	// MoreThan is about those among them that an answer lacked before: their age
	// then.
	MoreThan Percentiles `json:"more_than"`
	// Youngest is the least age at which a change was readable.
	Youngest float64 `json:"youngest_seconds"`
	// Suggested is the settle time with which, of all changes in AtMost, one in a
	// thousand would still have met an answer that was too old, in whole seconds;
	// 0 where every first answer was new enough, or nothing is known.
	Suggested float64 `json:"suggested_seconds"`
}

// Ages collects ages from calls. The zero value is ready.
type Ages struct {
	calls, early int
	atMost       []float64
	moreThan     []float64 // 0 for those that were readable at the first call

	account string
	lacked  []Call // of that account, calls that were too early
}

// Add takes a call. Calls come by account, and in the order of their time.
func (a *Ages) Add(c Call) {
	if c.Account != a.account {
		a.account, a.lacked = c.Account, nil
	}
	a.calls++
	if c.Unsettled {
		a.early++
		a.lacked = append(a.lacked, c)
		return
	}
	for _, r := range c.Covered {
		if r.Version.IsZero() {
			continue
		}
		a.atMost = append(a.atMost, c.CalledAt.Sub(r.Newest).Seconds())
		more := 0.0
		for _, l := range a.lacked {
			// The newest change that it lacked is one of these.
			if !l.Newest.Before(r.Oldest) && !l.Newest.After(r.Newest) {
				more = max(more, l.CalledAt.Sub(l.Newest).Seconds())
			}
		}
		a.moreThan = append(a.moreThan, more)
	}
}

// Report sums up.
func (a *Ages) Report(since time.Time) Report {
	r := Report{Since: since, Calls: a.calls, Early: a.early, AtMost: percentiles(a.atMost)}
	met := slices.DeleteFunc(slices.Clone(a.moreThan), func(age float64) bool { return age == 0 })
	r.MoreThan = percentiles(met)
	if len(a.atMost) > 0 {
		r.Youngest = round(slices.Min(a.atMost))
		if age := quantile(slices.Sorted(slices.Values(a.moreThan)), 0.999); age > 0 {
			r.Suggested = math.Ceil(age)
		}
	}
	return r
}

func percentiles(ages []float64) Percentiles {
	if len(ages) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(ages))
	return Percentiles{
		Changes: len(ages), P50: round(quantile(sorted, 0.5)), P90: round(quantile(sorted, 0.9)),
		P99: round(quantile(sorted, 0.99)), Max: round(sorted[len(sorted)-1]),
	}
}

// quantile returns the least age that the share q of sorted does not exceed.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func round(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// Read reads the calls of the sync log since then, and reports.
func Read(ctx context.Context, client *spanner.Client, table string, since time.Time) (Report, error) {
	statement := spanner.NewStatement("SELECT AccountId, CalledAt, Version, Outcome, NewestChangeAt, Sources FROM `" + table + "`" +
		" WHERE SyncedAt >= @since AND Version IS NOT NULL AND CalledAt IS NOT NULL AND Outcome IN ('written', 'unchanged', 'unsettled') ORDER BY AccountId, CalledAt")
	statement.Params = map[string]any{"since": since}
	var ages Ages
	err := client.Single().Query(ctx, statement).Do(func(r *spanner.Row) error {
		var c Call
		var version, outcome string
		var newest spanner.NullTime
		var sources spanner.NullString
		if err := r.Columns(&c.Account, &c.CalledAt, &version, &outcome, &newest, &sources); err != nil {
			return err
		}
		c.Newest, c.Unsettled = newest.Time, outcome == string(contract.OutcomeUnsettled)
		if err := c.Version.UnmarshalText([]byte(version)); err != nil {
			return fmt.Errorf("sync of %q called at %s: column Version: %w", c.Account, c.CalledAt, err)
		}
		if sources.StringVal != "" {
			if err := json.Unmarshal([]byte(sources.StringVal), &c.Covered); err != nil {
				return fmt.Errorf("sync of %q called at %s: column Sources: %w", c.Account, c.CalledAt, err)
			}
		}
		ages.Add(c)
		return nil
	})
	if err != nil {
		return Report{}, fmt.Errorf("read %s: %w", table, err)
	}
	return ages.Report(since), nil
}
