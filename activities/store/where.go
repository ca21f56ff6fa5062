package store

import (
	"context"
	"fmt"
	"os"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// Where names the settings that say where the database is, with their values. An
// emulator that is gone can be told by its address alone: the client's error for
// it is a bare timeout.
func (c Config) Where() string {
	if host := os.Getenv("SPANNER_EMULATOR_HOST"); host != "" {
		return "SPANNER_EMULATOR_HOST=" + host + ", SPANNER_DATABASE=" + c.Database
	}
	return "SPANNER_DATABASE=" + c.Database
}

// Ping fails unless the table of accounts can be read. It reads a row that is
// never there.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.Read(ctx, "")
	return s.explain("read table "+s.cfg.AccountsTable, err)
}

// explain says where the database is that could not be used, and what to do.
func (s *Store) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	what := op
	switch spanner.ErrCode(err) {
	case codes.NotFound:
		what = op + ": the table does not exist: run `worker migrate`"
		if strings.Contains(err.Error(), "Database not found") {
			what = op + ": the database does not exist: create it, then run `worker migrate`"
		}
	case codes.PermissionDenied, codes.Unauthenticated:
		what = op + ": refused: grant roles/spanner.databaseUser (migrate: databaseAdmin) to the identity that GOOGLE_APPLICATION_CREDENTIALS or the machine has"
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		what = op + ": no answer: start it, or name another"
	}
	return fmt.Errorf("%s: %s: %w", s.cfg.Where(), what, err)
}
