package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	ddl "github.com/quiesce-io/quiesce/deploy/spanner"
)

// The client library's in-memory server (spannertest) stands in for Spanner
// where there is no emulator. It has no INFORMATION_SCHEMA and takes a query on
// it for a syntax error, so what a table is like can only be found out by
// reading from it. It proves nothing about transactions.

// errNoSchema says that the server cannot describe its tables.
var errNoSchema = errors.New("no INFORMATION_SCHEMA")

// inMemory reports whether err is that server's answer to a schema query. A real
// Spanner never is taken for it: it is asked only where an emulator is set.
func (s *Store) inMemory(err error) bool {
	return s.turn != nil && spanner.ErrCode(err) == codes.InvalidArgument && strings.Contains(err.Error(), "bad query")
}

// checkInMemory is [Store.Check] without a schema to look at.
func (s *Store) checkInMemory(ctx context.Context, mapped []column) error {
	if len(mapped) > 0 {
		return errors.New("SPANNER_COLUMNS: the in-memory server cannot tell the columns' types: take the emulator, or leave it empty")
	}
	statements, err := s.pendingInMemory(ctx)
	if err != nil {
		return err
	}
	if len(statements) > 0 {
		return fmt.Errorf("%s: %w", s.cfg.Where(), ErrSchema)
	}
	s.columns.Store(&mapped)
	return nil
}

// pendingInMemory returns the statements for the tables that are not there.
func (s *Store) pendingInMemory(ctx context.Context) ([]string, error) {
	var statements []string
	for _, t := range []struct{ name, statement string }{{s.cfg.AccountsTable, ddl.Accounts()}, {s.cfg.SyncsTable, ddl.AccountSyncs()}} {
		err := s.Client().Single().Query(ctx, spanner.NewStatement("SELECT AccountId FROM `"+t.name+"` LIMIT 1")).Do(func(*spanner.Row) error { return nil })
		switch {
		case isNotFound(err):
			statements = append(statements, s.create(t.statement))
		case err != nil:
			return nil, s.explain(readSchema, err)
		}
	}
	return statements, nil
}
