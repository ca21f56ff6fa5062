package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
)

// Store is a Spanner database. It is safe for concurrent use.
type Store struct {
	cfg     Config
	client  *spanner.Client
	options []option.ClientOption

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
	// Native metrics would look for Google's metadata server, also where there
	// is none.
	client, err := spanner.NewClientWithConfig(ctx, cfg.Database, spanner.ClientConfig{DisableNativeMetrics: true}, options...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.Database, err)
	}
	s := &Store{cfg: cfg, client: client, options: options}
	if os.Getenv("SPANNER_EMULATOR_HOST") != "" {
		s.turn = make(chan struct{}, 1) // one: a single transaction at a time
	}
	return s, nil
}

// Close ends the client.
func (s *Store) Close() { s.client.Close() }

// Client returns the Spanner client, for queries on what the Store wrote.
func (s *Store) Client() *spanner.Client { return s.client }

// Read returns the account's row as it is now, or the zero Row. It retries what
// may pass until ctx ends, so give it a deadline.
func (s *Store) Read(ctx context.Context, account string) (Row, error) {
	const op = "read row"
	r, err := s.client.Single().ReadRow(ctx, s.cfg.AccountsTable, spanner.Key{account}, rowColumns)
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
