package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	ddl "github.com/quiesce-io/quiesce/deploy/spanner"
)

// SchemaVersion is the version of the tables that this build needs. A database
// has the greatest version all of whose columns are there, so it says for itself
// what it is; nothing has to be kept in step with it. Versions only add columns
// that may be NULL: older workers go on with newer tables.
const SchemaVersion = 2

// introduced says in which version a column came; 1 for those not named.
func introduced(table, column string) int {
	switch table + "." + column {
	case "Accounts.Version", "AccountSyncs.Tries", "AccountSyncs.Operator", "AccountSyncs.Reason", "AccountSyncs.Version":
		return 2
	}
	return 1
}

var (
	// ErrConflict is returned by [Store.Plan] for tables that cannot become what
	// they must be without losing what they hold; the error lists why.
	ErrConflict = errors.New("the tables cannot be upgraded: nothing was changed; target others with SPANNER_ACCOUNTS_TABLE and SPANNER_SYNCS_TABLE, or alter them by hand")
	// ErrLoss is returned by [Store.Plan] where rows of the sync log would be
	// deleted.
	ErrLoss = errors.New("rows of the sync log would be deleted: nothing was changed")
)

// Plan is what a migration does.
type Plan struct {
	From, To   int      // schema versions; From is 0 where a table is missing or lacks a column of version 1
	Statements []string // nil if there is nothing to do
}

// Migrate applies what [Store.Plan] returns, with nothing deleted, and returns the
// statements it ran; none if there was nothing to do. The database must exist.
func (s *Store) Migrate(ctx context.Context) ([]string, error) {
	plan, err := s.Plan(ctx, false)
	if err != nil {
		return nil, err
	}
	return plan.Statements, s.Apply(ctx, plan)
}

// Apply runs the statements of a plan.
func (s *Store) Apply(ctx context.Context, plan Plan) error {
	if len(plan.Statements) == 0 {
		return nil
	}
	admin, err := database.NewDatabaseAdminClient(ctx, s.options...)
	if err != nil {
		return s.explain("migrate", err)
	}
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: s.cfg.Database, Statements: plan.Statements})
	if err != nil {
		return s.explain("migrate", err)
	}
	if err := operation.Wait(ctx); err != nil {
		return s.explain("migrate", err)
	}
	return nil
}

// Plan returns the DDL statements that bring the database up to date. They create
// tables or add what those lack, and never drop or retype anything: a table that
// would need that is an [ErrConflict]. Unless deleteOlder is set, a retention that
// would delete rows which the sync log has now is an [ErrLoss].
func (s *Store) Plan(ctx context.Context, deleteOlder bool) (Plan, error) {
	plan := Plan{To: SchemaVersion}
	accounts, err := s.readTable(ctx, s.cfg.AccountsTable)
	if errors.Is(err, errNoSchema) {
		plan.Statements, err = s.pendingInMemory(ctx)
		return plan, err
	}
	if err != nil {
		return plan, s.explain(readSchema, err)
	}
	syncs, err := s.readTable(ctx, s.cfg.SyncsTable)
	if err != nil {
		return plan, s.explain(readSchema, err)
	}
	plan.From = schemaVersion(accounts, syncs)
	conflicts := slices.Concat(
		accounts.conflicts(s.cfg.AccountsTable, accountColumns(), accountsKey, s.mapped()),
		syncs.conflicts(s.cfg.SyncsTable, syncColumns(), syncsKey, nil))
	if len(conflicts) > 0 {
		return plan, fmt.Errorf("%s: %w\n%w", s.cfg.Where(), ErrConflict, errors.Join(conflicts...))
	}
	if len(accounts.columns) == 0 {
		plan.Statements = append(plan.Statements, s.create(ddl.Accounts()))
	} else {
		plan.Statements = append(plan.Statements, accounts.additions(s.cfg.AccountsTable, accountColumns())...)
	}
	if len(syncs.columns) == 0 {
		plan.Statements = append(plan.Statements, s.create(ddl.AccountSyncs()))
		return plan, nil
	}
	plan.Statements = append(plan.Statements, syncs.additions(s.cfg.SyncsTable, syncColumns())...)
	policy, err := s.retention(ctx, syncs, deleteOlder)
	if policy != "" {
		plan.Statements = append(plan.Statements, policy)
	}
	return plan, err
}

// schemaVersion returns the version of a pair of tables, 0 for less than 1.
func schemaVersion(accounts, syncs table) int {
	version := SchemaVersion
	for _, t := range []struct {
		name    string
		table   table
		columns []wanted
	}{{"Accounts", accounts, accountColumns()}, {"AccountSyncs", syncs, syncColumns()}} {
		for _, w := range t.columns {
			if _, ok := t.table.columns[strings.ToLower(w.name)]; !ok {
				version = min(version, introduced(t.name, w.name)-1)
			}
		}
	}
	return version
}

// retention returns the statement that makes the row deletion policy what
// SYNC_LOG_RETENTION says, "" if it is that already.
func (s *Store) retention(ctx context.Context, syncs table, deleteOlder bool) (string, error) {
	policy, verb := fmt.Sprintf("OLDER_THAN(SyncedAt, INTERVAL %d DAY)", s.cfg.SyncLogDays), "ADD"
	if samePolicy(syncs.policy, policy) {
		return "", nil
	}
	if syncs.policy != "" {
		verb = "REPLACE"
	}
	statement := fmt.Sprintf("ALTER TABLE `%s` %s ROW DELETION POLICY (%s)", s.cfg.SyncsTable, verb, policy)
	if _, ok := syncs.columns["syncedat"]; !ok || deleteOlder {
		return statement, nil
	}
	found := false
	older := spanner.NewStatement("SELECT 1 FROM `" + s.cfg.SyncsTable + "` WHERE SyncedAt < @cutoff LIMIT 1")
	older.Params = map[string]any{"cutoff": time.Now().AddDate(0, 0, -s.cfg.SyncLogDays)}
	if err := s.Client().Single().Query(ctx, older).Do(func(*spanner.Row) error { found = true; return nil }); err != nil {
		return "", s.explain(readSchema, err)
	}
	if found {
		return "", fmt.Errorf("%s: %w: there are some that are older than SYNC_LOG_RETENTION=%d days; --delete-older agrees to it", s.cfg.SyncsTable, ErrLoss, s.cfg.SyncLogDays)
	}
	return statement, nil
}

// mapped returns the mapped columns, without their types.
func (s *Store) mapped() []column {
	columns, _ := parseColumns(s.cfg.Columns) // Validate has seen it
	return columns
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
