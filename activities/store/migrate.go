package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	ddl "github.com/quiesce-io/quiesce/deploy/spanner"
)

// Migrate creates the tables or adds what they lack, and returns the statements
// it ran; none if there was nothing to do. It never drops or retypes anything:
// what it cannot mend, [Store.Check] names. The database must exist.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	statements, err := s.pending(ctx)
	if err != nil || len(statements) == 0 {
		return nil, err
	}
	admin, err := database.NewDatabaseAdminClient(ctx, s.options...)
	if err != nil {
		return nil, fmt.Errorf("migrate %s: %w", s.cfg.Database, err)
	}
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: s.cfg.Database, Statements: statements})
	if err != nil {
		return nil, fmt.Errorf("migrate %s: %w", s.cfg.Database, err)
	}
	if err := operation.Wait(ctx); err != nil {
		return nil, fmt.Errorf("migrate %s: %w", s.cfg.Database, err)
	}
	return statements, nil
}

// pending returns the DDL statements that bring the database up to date.
func (s *Store) pending(ctx context.Context) ([]string, error) {
	accounts, err := s.readTable(ctx, s.cfg.AccountsTable)
	if errors.Is(err, errNoSchema) {
		return s.pendingInMemory(ctx)
	}
	if err != nil {
		return nil, s.schemaError(err)
	}
	syncs, err := s.readTable(ctx, s.cfg.SyncsTable)
	if err != nil {
		return nil, s.schemaError(err)
	}
	policy := fmt.Sprintf("OLDER_THAN(SyncedAt, INTERVAL %d DAY)", s.cfg.SyncLogDays)
	var statements []string
	if len(accounts.columns) == 0 {
		statements = append(statements, s.create(ddl.Accounts()))
	} else {
		statements = append(statements, accounts.additions(s.cfg.AccountsTable, accountColumns())...)
	}
	if len(syncs.columns) == 0 {
		return append(statements, s.create(ddl.AccountSyncs())), nil
	}
	statements = append(statements, syncs.additions(s.cfg.SyncsTable, syncColumns())...)
	switch {
	case syncs.policy == "":
		statements = append(statements, fmt.Sprintf("ALTER TABLE `%s` ADD ROW DELETION POLICY (%s)", s.cfg.SyncsTable, policy))
	case !samePolicy(syncs.policy, policy):
		statements = append(statements, fmt.Sprintf("ALTER TABLE `%s` REPLACE ROW DELETION POLICY (%s)", s.cfg.SyncsTable, policy))
	}
	return statements, nil
}

// samePolicy compares expressions as Spanner may print them.
func samePolicy(a, b string) bool {
	strip := func(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), "")) }
	return strip(a) == strip(b)
}

// additions returns ALTER TABLE statements for the columns that a table lacks.
// They are added nullable: rows that exist have nothing to put there.
func (t table) additions(name string, columns []wanted) []string {
	var statements []string
	for _, w := range columns {
		have, ok := t.columns[strings.ToLower(w.name)]
		switch {
		case !ok:
			definition := strings.Replace(w.definition, " NOT NULL", "", 1)
			statements = append(statements, fmt.Sprintf("ALTER TABLE `%s` ADD COLUMN %s %s", name, w.name, definition))
		case w.commitTime && !have.commitTime && have.kind == w.kind:
			statements = append(statements, fmt.Sprintf("ALTER TABLE `%s` ALTER COLUMN %s SET OPTIONS (allow_commit_timestamp = true)", name, w.name))
		}
	}
	return statements
}

var (
	comment   = regexp.MustCompile(`(?m)^\s*--.*\n`)
	retention = regexp.MustCompile(`INTERVAL \d+ DAY`)
)

// create adapts a CREATE TABLE statement to the configured names and retention.
// Comments are removed: the API takes statements only.
func (s *Store) create(statement string) string {
	statement = comment.ReplaceAllString(statement, "")
	statement = strings.NewReplacer("`Accounts`", "`"+s.cfg.AccountsTable+"`", "`AccountSyncs`", "`"+s.cfg.SyncsTable+"`").Replace(statement)
	return strings.TrimSpace(retention.ReplaceAllString(statement, fmt.Sprintf("INTERVAL %d DAY", s.cfg.SyncLogDays)))
}
