package contract

import "time"

// Names of the budget workflow. They stand in histories.
const (
	// Budget is the workflow type that shares UPSTREAM_RPS out among workers.
	Budget = "Budget"
	// UpdateRenew takes a [ShareRequest] and returns a [Share].
	UpdateRenew = "renew"
	// UpdateSetBudget takes a [SetBudget] and returns a [BudgetStatus].
	UpdateSetBudget = "set"
	// QueryBudget returns a [BudgetStatus]; no arguments.
	QueryBudget = "budget"
)

const (
	// ShareTTL is how long the budget keeps a share for the worker it was
	// granted to, counted from the grant.
	ShareTTL = 15 * time.Second
	// ShareUse is how long the worker uses it, counted from before it asked. So
	// however long the answer took, the worker has stopped at least 5 s before
	// the share is anybody else's: room for a call to connect (SendWithin), for a
	// sliding second, and for the clocks of two Temporal hosts to differ.
	ShareUse = ShareTTL * 2 / 3
	// SendWithin is how long after the use of its permit a call's request may still
	// be written. It leaves a sliding second until the share is anybody else's, and
	// half a second besides.
	SendWithin = ShareTTL - ShareUse - 1500*time.Millisecond
	// ProbeUse is ShareUse for a share that is one probe. It is shorter than the
	// time between probes, so that two are never out at once.
	ProbeUse = 3 * time.Second
)

// BudgetWorkflowID returns the ID of the one workflow that keeps the pipeline's
// budget.
func BudgetWorkflowID(pipeline string) string { return pipeline + "/budget" }

// BudgetTaskQueue returns the budget's task queue. It is one of its own: renewals
// must not stand behind a backlog of syncs.
func BudgetTaskQueue(taskQueue string) string { return taskQueue + "-budget" }

// ShareRequest is a worker's report, and its demand for a share.
type ShareRequest struct {
	// Worker names one start of one process.
	Worker string `json:"worker"`
	// Started is when that was, by its own clock, and Age for how long it has run
	// since (zero: an older build). They tell which of two configured rates is the
	// newer; Age does whatever the worker takes for the date.
	Started time.Time `json:"started"`
	Age     Duration  `json:"age,omitempty"`
	// Seq grows with each request of the worker. The worker discards answers to
	// all but its latest.
	Seq int64 `json:"seq"`
	// RPS is the worker's UPSTREAM_RPS.
	RPS int `json:"rps"`
	// Held is the most calls the worker may turn out to have started in a
	// sliding second that ends now or later, if it never gets an answer.
	Held int `json:"held"`
	// Demand is how many calls a second it could use. Zero is idle.
	Demand int `json:"demand"`
	// Throttled is how many answers since the previous report asked for fewer
	// calls; RetryAfter is for how much longer upstream wants none at all.
	Throttled  int      `json:"throttled,omitempty"`
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Breaker is what the worker has found out about upstream; nil: nothing new.
	Breaker *BreakerEvent `json:"breaker,omitempty"`
	// Succeeded is when the latest call began that is known to have succeeded, in
	// Temporal's time; zero: none yet, or an older build.
	Succeeded time.Time `json:"succeeded,omitzero"`
	// Leaving says that this is the last request: all calls have ended.
	Leaving bool `json:"leaving,omitempty"`
}

// BreakerEvent is a worker's observation about upstream.
type BreakerEvent struct {
	// Open: upstream fails for everybody. Otherwise: a probe succeeded.
	Open bool `json:"open"`
	// Cause is one line without account data; of an opening only.
	Cause string `json:"cause,omitempty"`
	// Since is when the first of the failures that prove it had failed, in
	// Temporal's time; of an opening only. Zero, from an older build: nothing
	// refutes it.
	Since time.Time `json:"since,omitzero"`
	// Epoch is the latest [Breaker.Epoch] the worker knew. An observation from
	// before the breaker's last turn is out of date and ignored.
	Epoch int64 `json:"epoch"`
}

// Breaker is the fleet's circuit breaker.
type Breaker struct {
	Open  bool      `json:"open"`
	Since time.Time `json:"since,omitzero"` // in Temporal's time
	Cause string    `json:"cause,omitempty"`
	// Epoch grows with each turn.
	Epoch int64 `json:"epoch"`
}

// Share is the answer to a [ShareRequest].
type Share struct {
	// Calls is how many calls the worker may start in any sliding second until
	// [ShareUse] has passed since it asked.
	Calls int `json:"calls"`
	// Probe makes the share one single call within [ProbeUse].
	Probe bool `json:"probe,omitempty"`
	// Renew is how long to wait before asking again, unless there is news.
	Renew Duration `json:"renew"`
	// Limit is what holds for the fleet now, in calls per second; Leased is the
	// sum of what all workers may be using. (Metric budget.leased is Calls: summed
	// over workers it comes to about this.)
	Limit  int `json:"limit"`
	Leased int `json:"leased"`
	// Breaker is the fleet's, or what holds for this worker alone: see
	// [BudgetWorker.Out].
	Breaker Breaker `json:"breaker"`
	// WaitsUntil is when a budget that knows nothing of what was granted before
	// it will grant its first share; zero once passed.
	WaitsUntil time.Time `json:"waits_until,omitzero"`
	// PausedUntil is how long upstream wants no calls at all, in Temporal's time;
	// zero once passed, or from an older build.
	PausedUntil time.Time `json:"paused_until,omitzero"`
	// Unanswered is no part of an answer: it is where a worker shows its share that
	// has ended, and is when it made the latest request that was answered, by its
	// own clock; its start if none was.
	Unanswered time.Time `json:"unanswered_since,omitzero"`
}

// SetBudget is an operator's order.
type SetBudget struct {
	RPS int `json:"rps"` // calls per second; 0 pauses
}

// BudgetInput is the input of a run of [Budget].
type BudgetInput struct {
	// State is what the previous run left; nil in a run that knows nothing of
	// what has been granted, which therefore grants nothing for one [ShareTTL].
	State *BudgetState `json:"state,omitempty"`
}

// BudgetState is all that a run of [Budget] knows. Package allot gives it its
// meaning. Times are Temporal's.
type BudgetState struct {
	// Now is the latest time that was seen; it never goes back.
	Now time.Time `json:"now"`
	// OpenAt is when the first share may be granted.
	OpenAt time.Time `json:"open_at"`
	// Configured is the UPSTREAM_RPS of the worker that started last, at
	// ConfiguredAt, which is never later than it was first heard of; -1: no worker
	// has reported yet.
	Configured   int       `json:"configured"`
	ConfiguredAt time.Time `json:"configured_at,omitzero"`
	// Set is what an operator ordered since; nil: Configured holds.
	Set *int `json:"set,omitempty"`

	// Allowed is the part of the budget, from 0 to 1, that upstream's demands for
	// fewer calls have left at AllowedAt.
	Allowed   float64   `json:"allowed"`
	AllowedAt time.Time `json:"allowed_at"`
	// DecreasedAt is when it was last lowered; AllowedBefore is what it was
	// before it was lowered several times in a row.
	DecreasedAt   time.Time `json:"decreased_at,omitzero"`
	AllowedBefore float64   `json:"allowed_before"`
	// PausedUntil is how long upstream wants no calls at all.
	PausedUntil time.Time `json:"paused_until,omitzero"`

	Breaker   Breaker   `json:"breaker"`
	NextProbe time.Time `json:"next_probe,omitzero"` // while the breaker is open
	// OpenedBy is the worker that opened it, FailingSince the Since of its proof:
	// what refutes it is a success of another worker since then.
	OpenedBy     string    `json:"opened_by,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`

	// Workers are those that have been heard of within the TTL, by name.
	Workers []BudgetWorker `json:"workers,omitempty"`
}

// BudgetWorker is one worker as the budget knows it.
type BudgetWorker struct {
	Worker string `json:"worker"`
	Seq    int64  `json:"seq"`
	Demand int    `json:"demand"`
	// Granted is its latest share. Lease is what has to be kept for it: the
	// greater of Granted and what it held when it asked.
	Granted int       `json:"granted"`
	Lease   int       `json:"lease"`
	SeenAt  time.Time `json:"seen_at"`
	Expires time.Time `json:"expires"`
	// Succeeded is the latest of the worker's reports.
	Succeeded time.Time `json:"succeeded,omitzero"`
	// Out is set while upstream fails for this worker and not for others: it gets
	// nothing but probes, the next at NextProbe. Its Epoch means nothing.
	Out       *Breaker  `json:"out,omitempty"`
	NextProbe time.Time `json:"next_probe,omitzero"`
}

// BudgetStatus is what people are shown.
type BudgetStatus struct {
	At     time.Time `json:"at"`
	Budget int       `json:"budget"` // in force
	// Set says that an operator ordered it; Configured is UPSTREAM_RPS.
	Set        bool `json:"set"`
	Configured int  `json:"configured"`
	// Limit is what may be granted now: the budget, less while upstream asks for
	// fewer calls, 0 while it is paused, out, or unknown what is still out.
	Limit  int `json:"limit"`
	Leased int `json:"leased"`
	// WaitsUntil is when the first share may be granted; PausedUntil what
	// upstream asked for. Both are zero once passed.
	WaitsUntil  time.Time      `json:"waits_until,omitzero"`
	PausedUntil time.Time      `json:"paused_until,omitzero"`
	Breaker     Breaker        `json:"breaker"`
	Workers     []BudgetWorker `json:"workers"`
}
