package spannermemory

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"cloud.google.com/go/spanner/spansql"
)

// schema is what DDL has made of the database.
type schema struct {
	mu     sync.Mutex
	tables []*spansql.CreateTable // with later alterations applied
}

// apply applies statements that spannertest has accepted. One that it cannot
// keep track of is an error: better than a schema that is not so.
func (s *schema) apply(statements []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range statements {
		statement, err := spansql.ParseDDLStmt(text)
		if err != nil {
			return fmt.Errorf("spannermemory: %w", err)
		}
		switch statement := statement.(type) {
		case *spansql.CreateTable:
			s.tables = append(s.tables, statement)
		case *spansql.DropTable:
			s.tables = slices.DeleteFunc(s.tables, func(t *spansql.CreateTable) bool { return t.Name == statement.Name })
		case *spansql.CreateIndex, *spansql.DropIndex:
			// no view here shows secondary indexes
		case *spansql.AlterTable:
			if err := s.alter(statement); err != nil {
				return err
			}
		default:
			return fmt.Errorf("spannermemory: does not know what %q does to the schema", text)
		}
	}
	return nil
}

func (s *schema) alter(statement *spansql.AlterTable) error {
	i := slices.IndexFunc(s.tables, func(t *spansql.CreateTable) bool { return t.Name == statement.Name })
	if i < 0 {
		return fmt.Errorf("spannermemory: no table %s", statement.Name)
	}
	table := s.tables[i]
	switch alteration := statement.Alteration.(type) {
	case spansql.AddColumn:
		table.Columns = append(table.Columns, alteration.Def)
	case spansql.DropColumn:
		table.Columns = slices.DeleteFunc(table.Columns, func(c spansql.ColumnDef) bool { return c.Name == alteration.Name })
	case spansql.AddRowDeletionPolicy:
		table.RowDeletionPolicy = &alteration.RowDeletionPolicy
	case spansql.ReplaceRowDeletionPolicy:
		table.RowDeletionPolicy = &alteration.RowDeletionPolicy
	default:
		return fmt.Errorf("spannermemory: does not know what %q does to the schema", statement.SQL())
	}
	return nil
}

// null is the value of a field that is NULL.
var null *string

// record is a row of a view: strings by column, nil for NULL.
type record map[string]*string

func newRecord(pairs ...string) record {
	r := record{}
	for i := 0; i < len(pairs); i += 2 {
		r[pairs[i]] = &pairs[i+1]
	}
	return r
}

// view returns the rows of a view of INFORMATION_SCHEMA in the order of the
// tables and of their columns.
func (s *schema) view(name string) ([]record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []record
	for _, t := range s.tables {
		table := string(t.Name)
		switch name {
		case "TABLES":
			row := newRecord("TABLE_SCHEMA", "", "TABLE_NAME", table)
			row["ROW_DELETION_POLICY_EXPRESSION"] = null
			if p := t.RowDeletionPolicy; p != nil {
				expression := fmt.Sprintf("OLDER_THAN(%s, INTERVAL %d DAY)", p.Column, p.NumDays)
				row["ROW_DELETION_POLICY_EXPRESSION"] = &expression
			}
			rows = append(rows, row)
		case "COLUMNS":
			for i, c := range t.Columns {
				row := newRecord("TABLE_SCHEMA", "", "TABLE_NAME", table, "COLUMN_NAME", string(c.Name),
					"ORDINAL_POSITION", strconv.Itoa(i+1), "SPANNER_TYPE", c.Type.SQL(), "IS_NULLABLE", "YES", "IS_GENERATED", "NEVER")
				row["COLUMN_DEFAULT"] = null
				if c.NotNull {
					row["IS_NULLABLE"] = text("NO")
				}
				if c.Default != nil {
					row["COLUMN_DEFAULT"] = text(c.Default.SQL())
				}
				if c.Generated != nil {
					row["IS_GENERATED"] = text("ALWAYS")
				}
				rows = append(rows, row)
			}
		case "COLUMN_OPTIONS":
			for _, c := range t.Columns {
				if allow := c.Options.AllowCommitTimestamp; allow != nil && *allow {
					rows = append(rows, newRecord("TABLE_SCHEMA", "", "TABLE_NAME", table, "COLUMN_NAME", string(c.Name),
						"OPTION_NAME", "allow_commit_timestamp", "OPTION_TYPE", "BOOL", "OPTION_VALUE", "TRUE"))
				}
			}
		case "INDEX_COLUMNS":
			for i, part := range t.PrimaryKey {
				order := "ASC"
				if part.Desc {
					order = "DESC"
				}
				rows = append(rows, newRecord("TABLE_SCHEMA", "", "TABLE_NAME", table, "INDEX_NAME", "PRIMARY_KEY",
					"COLUMN_NAME", string(part.Column), "ORDINAL_POSITION", strconv.Itoa(i+1), "COLUMN_ORDERING", order))
			}
		default:
			return nil, fmt.Errorf("no view INFORMATION_SCHEMA.%s here", name)
		}
	}
	return rows, nil
}

func text(s string) *string { return &s }
