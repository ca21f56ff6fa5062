package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	ddl "github.com/quiesce-io/quiesce/deploy/spanner"
)

// wanted is a column as the DDL has it.
type wanted struct {
	name       string
	definition string // all after the name: type, NOT NULL, OPTIONS
	kind       string // the type without a length
	full       string // the type
	neverNull  bool   // NULL is never written there, so an existing one may be NOT NULL
	commitTime bool
}

// columnLine is a column in the DDL files; each stands on a line of its own.
var columnLine = regexp.MustCompile(`(?m)^  ([A-Z]\w*) ((([A-Z0-9]+)(?:\((?:MAX|\d+)\))?).*),$`)

func columnsOf(statement string) []wanted {
	var columns []wanted
	for _, m := range columnLine.FindAllStringSubmatch(statement, -1) {
		columns = append(columns, wanted{
			name: m[1], definition: m[2], full: m[3], kind: m[4],
			neverNull:  strings.Contains(m[2], " NOT NULL"),
			commitTime: strings.Contains(m[2], "allow_commit_timestamp"),
		})
	}
	return columns
}

func accountColumns() []wanted {
	columns := columnsOf(ddl.Accounts())
	for i, c := range columns {
		columns[i].neverNull = c.neverNull || slices.Contains([]string{"Sources", "CalledAt", "SyncId", "Attempt", "SyncedAt"}, c.name)
	}
	return columns
}

func syncColumns() []wanted { return columnsOf(ddl.AccountSyncs()) }

// table is a table as the database has it. Names are compared without regard
// to case, as Spanner does.
type table struct {
	columns map[string]actual // by lower-case name; empty if there is no table
	key     []string          // "AccountId", "SyncedAt DESC"
	policy  string            // row deletion policy; "" for none
}

type actual struct {
	name       string
	kind       string // type without a length
	full       string // type
	commitTime bool
	notNull    bool
	required   bool // NOT NULL and no default
}

// readTable reads what INFORMATION_SCHEMA knows about a table.
func (s *Store) readTable(ctx context.Context, name string) (table, error) {
	t := table{columns: map[string]actual{}}
	tx := s.Client().ReadOnlyTransaction()
	defer tx.Close()
	query := func(sql string, each func(r *spanner.Row) error) error {
		statement := spanner.Statement{SQL: sql, Params: map[string]any{"t": name}}
		return tx.Query(ctx, statement).Do(each)
	}
	err := query(`SELECT COLUMN_NAME, SPANNER_TYPE, IS_NULLABLE = 'NO', IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND IS_GENERATED = 'NEVER'
		FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) = LOWER(@t)`, func(r *spanner.Row) error {
		var c actual
		if err := r.Columns(&c.name, &c.full, &c.notNull, &c.required); err != nil {
			return err
		}
		c.kind, _, _ = strings.Cut(c.full, "(")
		t.columns[strings.ToLower(c.name)] = c
		return nil
	})
	if s.inMemory(err) {
		return t, errNoSchema
	}
	if err != nil {
		return t, err
	}
	err = query(`SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMN_OPTIONS
		WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) = LOWER(@t) AND OPTION_NAME = 'allow_commit_timestamp' AND OPTION_VALUE = 'TRUE'`, func(r *spanner.Row) error {
		var column string
		if err := r.Columns(&column); err != nil {
			return err
		}
		c := t.columns[strings.ToLower(column)]
		c.commitTime = true
		t.columns[strings.ToLower(column)] = c
		return nil
	})
	if err != nil {
		return t, err
	}
	err = query(`SELECT COLUMN_NAME, COLUMN_ORDERING FROM INFORMATION_SCHEMA.INDEX_COLUMNS
		WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) = LOWER(@t) AND INDEX_NAME = 'PRIMARY_KEY' ORDER BY ORDINAL_POSITION`, func(r *spanner.Row) error {
		var column, order string
		if err := r.Columns(&column, &order); err != nil {
			return err
		}
		t.key = append(t.key, strings.TrimSuffix(column+" "+order, " ASC"))
		return nil
	})
	if err != nil {
		return t, err
	}
	err = query(`SELECT ROW_DELETION_POLICY_EXPRESSION FROM INFORMATION_SCHEMA.TABLES
		WHERE TABLE_SCHEMA = '' AND LOWER(TABLE_NAME) = LOWER(@t)`, func(r *spanner.Row) error {
		var policy spanner.NullString
		err := r.Columns(&policy)
		t.policy = policy.StringVal
		return err
	})
	return t, err
}

// faults compares a table with what Quiesce needs of it. Mapped are columns of
// the user's; their kinds are filled in.
func (t table) faults(name string, columns []wanted, key []string, mapped []column) []error {
	if len(t.columns) == 0 {
		return []error{fmt.Errorf("table %s is missing", name)}
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("table %s: "+format, append([]any{name}, args...)...))
	}
	for _, w := range columns {
		have, ok := t.columns[strings.ToLower(w.name)]
		switch {
		case !ok:
			fault("column %s is missing", w.name)
		case have.kind == w.kind && w.commitTime && !have.commitTime:
			fault("column %s must have OPTIONS (allow_commit_timestamp = true)", w.name)
		}
	}
	for i, c := range mapped {
		have, ok := t.columns[strings.ToLower(c.name)]
		switch {
		case !ok:
			fault("column %s is named in SPANNER_COLUMNS and missing: add it with ALTER TABLE", c.name)
		case !slices.Contains(mappable, have.kind):
			fault("column %s is %s; SPANNER_COLUMNS can fill %s", c.name, have.full, strings.Join(mappable, ", "))
		case have.notNull: // a default is no help: NULL is what is written
			fault("column %s is NOT NULL; SPANNER_COLUMNS needs it nullable, for fields that are missing and accounts that are deleted", c.name)
		}
		mapped[i] = c.ofType(have.full)
	}
	return append(faults, t.conflicts(name, columns, key, mapped)...)
}

// conflicts are the faults that no column can be added for; none if there is no
// table yet.
func (t table) conflicts(name string, columns []wanted, key []string, mapped []column) []error {
	if len(t.columns) == 0 {
		return nil
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("table %s: "+format, append([]any{name}, args...)...))
	}
	filled := map[string]bool{}
	for _, c := range mapped {
		filled[strings.ToLower(c.name)] = true
	}
	for _, w := range columns {
		filled[strings.ToLower(w.name)] = true
		have, ok := t.columns[strings.ToLower(w.name)]
		switch alter := fmt.Sprintf("ALTER TABLE `%s` ALTER COLUMN %s", name, have.name); {
		case !ok:
		case have.kind != w.kind:
			fault("column %s is %s and must be %s", w.name, have.full, w.kind)
		case shorter(have.full, w.full) && !slices.Contains(maybeShort, w.name):
			definition := w.full
			if have.notNull && w.neverNull {
				definition += " NOT NULL"
			}
			fault("column %s is %s, too short for what is written there: %s %s", w.name, have.full, alter, definition)
		case have.notNull && !w.neverNull:
			fault("column %s is NOT NULL and must be nullable: %s %s", w.name, alter, have.full)
		}
	}
	for _, lower := range slices.Sorted(maps.Keys(t.columns)) {
		if have := t.columns[lower]; have.required && !filled[lower] {
			fault("column %s is NOT NULL without a default and not filled by Quiesce, so no row could be inserted", have.name)
		}
	}
	if !slices.EqualFunc(t.key, key, strings.EqualFold) {
		fault("the primary key is (%s) and must be (%s)", strings.Join(t.key, ", "), strings.Join(key, ", "))
	}
	return faults
}

// maybeShort are columns for what a team may know to be short. What is not is
// refused when it is written, and only that account is concerned.
var maybeShort = []string{"AccountId", "Payload"}

// shorter reports whether a column of type have takes fewer characters than one of
// type want. Both are of one kind.
func shorter(have, want string) bool {
	most, needed := column{}.ofType(have).most, column{}.ofType(want).most // 0 is MAX
	return most != 0 && (needed == 0 || most < needed)
}

var (
	accountsKey = []string{"AccountId"}
	syncsKey    = []string{"AccountId", "SyncedAt DESC", "SyncId"}
)

// ErrSchema is returned by [Store.Check] for tables that are not as they must
// be; the error lists everything that is wrong.
var ErrSchema = errors.New("the database is not ready: run `worker migrate`")

// readSchema is the operation that errors name.
const readSchema = "read schema"

// Check compares the database with what Quiesce needs and says precisely what
// is missing. It must succeed once before the first Write.
func (s *Store) Check(ctx context.Context) error {
	mapped, err := parseColumns(s.cfg.Columns)
	if err != nil {
		return fmt.Errorf("SPANNER_COLUMNS: %w", err)
	}
	accounts, err := s.readTable(ctx, s.cfg.AccountsTable)
	if errors.Is(err, errNoSchema) {
		return s.checkInMemory(ctx, mapped)
	}
	if err != nil {
		return s.explain(readSchema, err)
	}
	syncs, err := s.readTable(ctx, s.cfg.SyncsTable)
	if err != nil {
		return s.explain(readSchema, err)
	}
	faults := accounts.faults(s.cfg.AccountsTable, accountColumns(), accountsKey, mapped)
	faults = append(faults, syncs.faults(s.cfg.SyncsTable, syncColumns(), syncsKey, nil)...)
	if len(faults) > 0 {
		return fmt.Errorf("%s: %w: it is at schema %d, this build needs %d\n%w", s.cfg.Where(), ErrSchema,
			schemaVersion(accounts, syncs), SchemaVersion, errors.Join(faults...))
	}
	s.columns.Store(&mapped)
	return nil
}
