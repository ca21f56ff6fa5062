package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
)

// Store is a Spanner database. It is safe for concurrent use.
type Store struct {
	cfg     Config
	options []option.ClientOption

	// client is replaced when its session is lost; renewing is held meanwhile.
	client   atomic.Pointer[spanner.Client]
	renewing sync.Mutex

	// columns are the mapped columns with their types, once Check has seen them.
	columns atomic.Pointer[[]column]

	// turn holds a token where transactions must take turns: the emulator allows
	// one open transaction per session, and the client multiplexes all on one.
	// Nil with a real Spanner.
	turn chan struct{}
}

// Open returns a Store for a valid cfg. It makes no call; [Store.Check] does,
// and must have succeeded before the first Write.
func Open(ctx context.Context, cfg Config, options ...option.ClientOption) (*Store, error) {
	s := &Store{cfg: cfg, options: options}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	s.client.Store(client)
	if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
		s.turn = make(chan struct{}, 1) // one: a single transaction at a time
	}
	return s, nil
}

func (s *Store) connect(ctx context.Context) (*spanner.Client, error) {
	// Native metrics would look for Google's metadata server, also where there
	// is none.
	client, err := spanner.NewClientWithConfig(ctx, s.cfg.Database, spanner.ClientConfig{DisableNativeMetrics: true}, s.options...)
	if err != nil {
		return nil, s.explain("connect", err)
	}
	return client, nil
}

// Close ends the client.
func (s *Store) Close() { s.Client().Close() }

// Client returns the Spanner client, for queries on what the Store wrote. It may
// be another one the next time.
func (s *Store) Client() *spanner.Client { return s.client.Load() }

// renewed runs f, and once more with a new client if the session was lost. The
// client multiplexes everything on one session, replaces it in its own time only,
// and until then every request fails: a worker would be out of order until
// somebody restarted it. Nothing was committed in a session that is gone.
func (s *Store) renewed(ctx context.Context, f func(client *spanner.Client) error) error {
	used := s.Client()
	err := f(used)
	if !sessionLost(err) {
		return err
	}
	if renewErr := s.renew(ctx, used); renewErr != nil {
		return errors.Join(err, renewErr)
	}
	return f(s.Client())
}

// renew replaces the client that lost its session, unless somebody has already.
func (s *Store) renew(ctx context.Context, lost *spanner.Client) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if s.Client() != lost {
		return nil
	}
	client, err := s.connect(context.WithoutCancel(ctx)) // it outlives the request
	if err != nil {
		return err
	}
	s.client.Store(client)
	lost.Close() // what is under way in it is lost with the session
	return nil
}

// sessionLost reports whether Spanner does not know the client's session.
func sessionLost(err error) bool {
	return spanner.ErrCode(err) == codes.NotFound && strings.Contains(err.Error(), "Session not found")
}

// Read returns the account's row as it is now, or the zero Row. It retries what
// may pass until ctx ends, so give it a deadline.
func (s *Store) Read(ctx context.Context, account string) (Row, error) {
	const op = "read row"
	var r *spanner.Row
	err := s.renewed(ctx, func(client *spanner.Client) (err error) {
		r, err = client.Single().ReadRow(ctx, s.cfg.AccountsTable, spanner.Key{account}, rowColumns)
		return err
	})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return Row{}, nil
	}
	if err != nil {
		return Row{}, classify(op, err)
	}
	return decodeRow(op, r)
}

// readRow is Read within a transaction.
func (s *Store) readRow(ctx context.Context, tx *spanner.ReadWriteTransaction, account string) (Row, error) {
	r, err := tx.ReadRow(ctx, s.cfg.AccountsTable, spanner.Key{account}, rowColumns)
	if errors.Is(err, spanner.ErrRowNotFound) {
		return Row{}, nil
	}
	if err != nil {
		return Row{}, err // unwrapped: the client must see Aborted
	}
	return decodeRow("write row", r)
}

// transact runs a read-write transaction, when it is its turn.
func (s *Store) transact(ctx context.Context, f func(context.Context, *spanner.ReadWriteTransaction) error) error {
	return s.exclusively(ctx, func() error {
		return s.renewed(ctx, func(client *spanner.Client) error {
			_, err := client.ReadWriteTransaction(ctx, f)
			return err
		})
	})
}

// exclusively runs f when it is its turn.
func (s *Store) exclusively(ctx context.Context, f func() error) error {
	if s.turn == nil {
		return f()
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return spanner.ToSpannerError(ctx.Err())
	}
	defer func() { <-s.turn }()
	return f()
}

// isNotFound reports that a table, or the database itself, is not there.
func isNotFound(err error) bool { return spanner.ErrCode(err) == codes.NotFound }
