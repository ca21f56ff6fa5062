package replay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"

	"github.com/quiesce-io/quiesce/bridge/run"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// How long a slice lasts. Together they stay below the activity's lease.
const (
	sliceTime = 10 * time.Minute // then no account is begun any more
	sliceRest = 2 * time.Minute  // for those under way to end
	stopRest  = time.Second      // the same when it is told to stop
)

// Accounts is what the activity asks of accounts' runs; [Runs] answers.
type Accounts interface {
	Request(ctx context.Context, account string, request contract.ReplayRequest) (runID string, err error)
	Follow(ctx context.Context, account, runID, id string) (result, error)
	Served(ctx context.Context, account, id string) (result, bool, error)
}

// Activity hosts [contract.ReplayAccounts].
type Activity struct {
	Accounts Accounts
	Kafka    *Kafka
	Logger   *slog.Logger
}

// Register registers the activity under its contract name.
func (a *Activity) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(a.ReplayAccounts, activity.RegisterOptions{Name: contract.ReplayAccounts})
}

// errSliceOver ends the reading of a slice.
var errSliceOver = errors.New("slice is over")

// ReplayAccounts does a slice of the replay and returns how far it came. It ends
// early, and without an error, when it is cancelled or its bridge stops: what is
// under way is given a moment, and looked at again by the next slice.
func (a *Activity) ReplayAccounts(ctx context.Context, in contract.ReplayInput) (contract.ReplayProgress, error) {
	began, attempt := in.Progress, activity.GetInfo(ctx).Attempt
	if activity.HasHeartbeatDetails(ctx) {
		var beat contract.ReplayProgress
		if err := activity.GetHeartbeatDetails(ctx, &beat); err == nil {
			began = beat
		}
	}
	s := &slice{
		Activity: a, in: in, began: began, tracker: newTracker(began), logger: a.Logger.With("replay", in.ID),
		again: in.Again || attempt > 1 || began.Next != (contract.ReplayCursor{}) || len(began.Ahead) > 0,
	}
	stopBeats := s.heartbeat(ctx)
	err := s.run(ctx)
	stopBeats()
	progress := s.tracker.progress()
	if err != nil {
		activity.RecordHeartbeat(ctx, progress)
		return progress, err
	}
	return progress, nil
}

// slice is one execution of the activity.
type slice struct {
	*Activity
	in      contract.ReplayInput
	began   contract.ReplayProgress
	again   bool // accounts may have been signalled before
	reached bool // where the slice before this one ended
	tracker *tracker
	logger  *slog.Logger
}

// run feeds accounts to those who replay them. It stops in this order: no
// account is begun; those under way end, for a bounded time; what is left is
// given up.
func (s *slice) run(ctx context.Context) error {
	feeding, stopFeeding := context.WithTimeoutCause(ctx, sliceTime, errSliceOver)
	defer stopFeeding()
	stop := activity.GetWorkerStopChannel(ctx)
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()

	over := make(chan struct{})
	var watch errgroup.Group
	watch.Go(func() error {
		rest := sliceRest
		select {
		case <-over:
			return nil
		case <-stop:
			rest = stopRest
		case <-ctx.Done():
			rest = stopRest
		case <-feeding.Done():
		}
		stopFeeding()
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
		}
		stopWorking()
		return nil
	})

	items := make(chan item) // unbuffered: what is not begun is not handed over
	var group errgroup.Group
	for range max(1, s.in.InFlight) {
		group.Go(func() error {
			for i := range items {
				if r, ok := s.account(working, i.account); ok {
					s.tracker.done(i.at, i.account, r)
				}
			}
			return nil
		})
	}
	err := s.feed(feeding, items)
	close(items)
	_ = group.Wait() // no error: what is given up stands in the tracker
	close(over)
	_ = watch.Wait()
	if feeding.Err() != nil {
		if !s.reached && errors.Is(context.Cause(feeding), errSliceOver) {
			s.logger.Warn("reading again what the slices before have done takes a whole slice; "+
				"if that repeats itself, cancel this replay and replay the rest as ranges of their own", "place", s.began.Next)
		}
		return nil // the slice is over, whichever way
	}
	if err == nil {
		s.tracker.exhausted()
	}
	return err
}

// feed goes through the source and hands over every account that this replay
// has not met before.
func (s *slice) feed(ctx context.Context, items chan<- item) error {
	pace := newPace(s.in.MaxPerSecond)
	seen := map[string]struct{}{}
	ahead := map[contract.ReplayCursor]bool{}
	for _, at := range s.began.Ahead {
		ahead[at] = true
	}
	return s.Kafka.each(ctx, s.in, func(i item) error {
		before := i.at.Before(s.began.Next) || ahead[i.at]
		s.reached = s.reached || !before
		if i.account == "" {
			if !before {
				if err := s.room(ctx); err != nil {
					return err
				}
				s.tracker.begin(i)
				s.tracker.done(i.at, "", result{kind: invalid})
			}
			return ctx.Err()
		}
		if _, met := seen[i.account]; met {
			s.tracker.pass(i.at)
			return ctx.Err()
		}
		seen[i.account] = struct{}{}
		if before {
			s.tracker.pass(i.at)
			return ctx.Err()
		}
		if err := s.room(ctx); err != nil {
			return err
		}
		if err := pace.wait(ctx); err != nil {
			return err
		}
		// It is begun before it is handed over: what is handed over and then
		// given up must stand in the way of the cursor.
		s.tracker.begin(i)
		select {
		case items <- i:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// room waits while too many places are done ahead of one whose account is still
// under way.
func (s *slice) room(ctx context.Context) error {
	for s.tracker.full() {
		if err := sleep(ctx, retryAfter); err != nil {
			return err
		}
	}
	return nil
}

// account replays one account. It reports false if it was given up.
func (s *slice) account(ctx context.Context, account string) (result, bool) {
	for look := s.again; ; {
		r, err := s.once(ctx, account, look)
		if err == nil {
			return r, true
		}
		if ctx.Err() != nil {
			return result{}, false
		}
		if run.Invalid(err) {
			s.logger.Error("Temporal refuses the account", "account", account, "error", err)
			return result{kind: invalid}, true
		}
		if !errors.Is(err, errAgain) {
			s.logger.Warn("account is tried again", "account", account, "error", err)
		}
		look = true // the request may have come through all the same
		if sleep(ctx, retryAfter) != nil {
			return result{}, false
		}
	}
}

func (s *slice) once(ctx context.Context, account string, look bool) (result, error) {
	if look {
		r, served, err := s.Accounts.Served(ctx, account, s.in.ID)
		if err != nil || served {
			return r, err
		}
	}
	runID, err := s.Accounts.Request(ctx, account, contract.ReplayRequest{ID: s.in.ID, Operator: s.in.Operator, Since: s.in.Began})
	if err != nil {
		return result{}, err
	}
	return s.Accounts.Follow(ctx, account, runID, s.in.ID)
}

// heartbeat reports the progress every second; the SDK sends some of it.
func (s *slice) heartbeat(ctx context.Context) (stop func()) {
	quit := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			activity.RecordHeartbeat(ctx, s.tracker.progress())
			select {
			case <-ticker.C:
			case <-quit:
				return nil
			}
		}
	})
	return func() {
		close(quit)
		_ = group.Wait()
	}
}

// pace spaces accounts out evenly.
type pace struct {
	every time.Duration // 0: no bound
	next  time.Time
}

func newPace(perSecond float64) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{every: time.Duration(float64(time.Second) / perSecond)}
}

func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	if p.next.Before(now) {
		p.next = now // no catching up: a bound is a bound
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	return sleep(ctx, wait)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
