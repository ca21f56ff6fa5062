package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/internal/telemetry"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Sink takes admitted changes.
type Sink interface {
	// Submit takes a change over; it never blocks.
	Submit(c buffer.Change)
}

// Deps are what a consumer works with. Functions may be nil.
type Deps struct {
	Logger  *slog.Logger
	Metrics telemetry.Metrics
	Sink    Sink
	Buffer  *buffer.Buffer
	Ledger  *ledger.Ledger
	// PollTurn and CommitTurn are called whenever the poll loop, and the
	// committer, has turned: got an answer, even an error, or had nothing to do.
	PollTurn   func()
	CommitTurn func()
	// MayAdmit says whether this machine's clock can be trusted. While false,
	// nothing is admitted, and what waits meanwhile counts as arriving after it.
	MayAdmit func() bool
	// Options are added to those of every Kafka client, and win.
	Options []kgo.Opt
}

// How long the consumer waits for Kafka where a peer waits for it.
const (
	// commitTimeout bounds one commit. A revocation waits for it, so it must
	// stay well below rebalanceTimeout and the loop leases.
	commitTimeout = 5 * time.Second
	// rebalanceTimeout is how long a rebalance waits for a member to join; a
	// member that was killed while joining holds the whole group up for that
	// long. Ours never take longer than a commit.
	rebalanceTimeout = 4 * commitTimeout
	// hangTimeout is how long the loops get to see that they are to end. One that
	// hangs must not keep the member in the group.
	hangTimeout = 2 * time.Second
	// leaveTimeout bounds leaving the group and closing.
	leaveTimeout = 10 * time.Second
	// stuckTimeout takes the place of both where a loop hangs: it may hold what
	// they need.
	stuckTimeout = 2 * time.Second
)

// Consumer is one member of the group. It runs once.
type Consumer struct {
	cfg    Config
	deps   Deps
	intake *intake.Intake
	log    *slog.Logger
	base   []kgo.Opt // connection and Deps.Options

	admin   *kgo.Client // everything but consuming: metadata, offsets, dead letters
	single  *kgo.Client // dead letters that go one by one; connects only when used
	kadm    *kadm.Client
	dead    *deadLetters
	commits committer
	seldom  seldom
	fail    context.CancelCauseFunc

	mu         sync.Mutex
	client     *kgo.Client // nil before Run has joined, and after it has left
	partitions map[partitionKey]*partition
	observed   error                       // of the latest look at the topics
	known      map[string]contract.TopicID // topics by name, as first met
	recreated  map[string]recreation
}

type partitionKey struct {
	topic     string
	partition int32
}

func (k partitionKey) String() string { return fmt.Sprintf("%s/%d", k.topic, k.partition) }

// partition is one assigned partition, guarded by Consumer.mu.
type partition struct {
	key        partitionKey
	assignment *ledger.Assignment
	gate       *buffer.Gate
	held       []item // fetched, not admitted, in offset order: at most one poll
	mistimed   bool   // held has times of a clock that was off
	paused     bool
	stopped    string    // why, and how to resume; empty while it runs
	unreadable int       // fetches in a row that could not be read
	end        int64     // last stable offset as far as known, -1 if not
	first      int64     // first offset that there is, as far as known, -1 if not
	alarmed    time.Time // last time shrinking headroom was logged
}

// New returns a consumer; it connects to nothing before Run.
func New(cfg Config, deps Deps) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	in, err := intake.New(cfg.Intake)
	if err != nil {
		return nil, err
	}
	base, err := cfg.Connection()
	if err != nil {
		return nil, err
	}
	if deps.MayAdmit == nil {
		deps.MayAdmit = func() bool { return true }
	}
	if deps.PollTurn == nil {
		deps.PollTurn = func() {}
	}
	if deps.CommitTurn == nil {
		deps.CommitTurn = func() {}
	}
	c := &Consumer{
		cfg: cfg, deps: deps, intake: in, log: deps.Logger,
		base:       append(base, deps.Options...),
		commits:    make(committer, 1),
		partitions: make(map[partitionKey]*partition),
		known:      make(map[string]contract.TopicID),
		recreated:  make(map[string]recreation),
	}
	c.dead = newDeadLetters(c)
	return c, nil
}

// Run consumes until ctx is done, or something happens that only a new process
// can mend: then it returns that error. It stops in this order:
//
//  1. polling ends; nothing more is admitted. A loop that hangs is left behind
//  2. dead letters under way are flushed
//  3. the watermarks are committed, and word is left of recreated topics
//  4. the group is left and the clients are closed
//
// each within a bounded time. Nobody waits for workflows: what they cover later
// is the next owner's.
func (c *Consumer) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	c.fail = fail

	admin, err := kgo.NewClient(append(c.producer(), c.base...)...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer admin.Close()
	single, err := kgo.NewClient(append(c.producer(), c.base...)...)
	if err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer single.Close()
	c.admin, c.single, c.kadm = admin, single, kadm.NewClient(admin)
	if err := c.checkStart(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	c.takeOver(ctx)

	// The callbacks use the client too; they wait for mu until it is set.
	c.mu.Lock()
	client, err := kgo.NewClient(append(c.member(), c.base...)...)
	c.client = client
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("kafka group member: %w", err)
	}

	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){c.pollLoop, c.commitLoop, c.observeLoop, c.dead.loop} {
		loops.Go(func() { loop(ctx) })
	}
	ended := make(chan struct{})
	go func() { loops.Wait(); close(ended) }()
	<-ctx.Done() // its cause is the error
	stuck := !within(hangTimeout, ended)

	c.stop(context.WithoutCancel(ctx), stuck)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// stop ends the membership. A loop that is stuck may hold the lock that commits
// and callbacks need: then neither is waited for long, and the group is told
// without them.
func (c *Consumer) stop(ctx context.Context, stuck bool) {
	finish, leave := 3*commitTimeout, leaveTimeout
	if stuck {
		finish, leave = stuckTimeout, stuckTimeout
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		flush, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		if err := c.dead.flush(flush); err != nil {
			c.log.Warn("dead letters not flushed; their records will be read again", "error", err)
		}
		c.markRecreated(ctx)
		c.commit(ctx, c.deps.Ledger.Assignments())
	}()
	within(finish, finished)

	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.client.CloseAllowingRebalance()
	}()
	if !within(leave, closed) {
		c.leaveAlone(ctx, leave)
	}
	c.leaveStatic(ctx)
	for _, a := range c.deps.Ledger.Assignments() {
		a.Drop()
	}
}

// within waits until done is closed, for limit at most, and reports whether it
// was.
func within(limit time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
