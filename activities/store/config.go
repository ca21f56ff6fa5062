package store

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Config holds the settings of a [Store]. SPANNER_EMULATOR_HOST and Google's
// credential variables are read by the client itself.
type Config struct {
	Database      string `env:"SPANNER_DATABASE" help:"Database, as projects/P/instances/I/databases/D; required."`
	AccountsTable string `env:"SPANNER_ACCOUNTS_TABLE" help:"Table with one row per account."`
	SyncsTable    string `env:"SPANNER_SYNCS_TABLE" help:"Table of the sync log."`
	// Columns copies fields of the payload into columns of AccountsTable, which
	// must exist, so that they can be queried and indexed.
	Columns string `env:"SPANNER_COLUMNS" help:"Columns filled from the payload, as Column=path.to.field,...; a missing field is NULL; empty fills none."`
	// SyncLogDays is applied by migrate.
	SyncLogDays int `env:"SYNC_LOG_RETENTION" help:"Days after which rows of the sync log are deleted; worker migrate applies it."`
}

// Default returns a Config in which SPANNER_DATABASE is still missing.
func Default() Config {
	return Config{AccountsTable: "Accounts", SyncsTable: "AccountSyncs", SyncLogDays: 90}
}

var (
	databaseName = regexp.MustCompile(`^projects/[^/]+/instances/[^/]+/databases/[^/]+$`)
	identifier   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,127}$`)
)

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	fault := func(name, value, problem string) {
		faults = append(faults, config.Fault{Name: name, Value: value, Problem: problem})
	}
	switch {
	case c.Database == "":
		fault("SPANNER_DATABASE", "", "is required: projects/P/instances/I/databases/D")
	case !databaseName.MatchString(c.Database):
		fault("SPANNER_DATABASE", c.Database, "must look like projects/P/instances/I/databases/D")
	}
	for _, table := range []struct{ variable, name string }{{"SPANNER_ACCOUNTS_TABLE", c.AccountsTable}, {"SPANNER_SYNCS_TABLE", c.SyncsTable}} {
		if !identifier.MatchString(table.name) {
			fault(table.variable, table.name, "must be a table name: a letter, then letters, digits and _")
		}
	}
	if strings.EqualFold(c.AccountsTable, c.SyncsTable) {
		fault("SPANNER_SYNCS_TABLE", c.SyncsTable, "must differ from SPANNER_ACCOUNTS_TABLE")
	}
	if _, err := parseColumns(c.Columns); err != nil {
		fault("SPANNER_COLUMNS", c.Columns, err.Error())
	}
	if c.SyncLogDays < 1 || c.SyncLogDays > 36500 {
		fault("SYNC_LOG_RETENTION", strconv.Itoa(c.SyncLogDays), "must be from 1 to 36500 days")
	}
	return errors.Join(faults...)
}

// parseColumns parses "Email=email,City=address.city".
func parseColumns(text string) ([]column, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	taken := map[string]bool{}
	for _, c := range accountColumns() {
		taken[strings.ToLower(c.name)] = true
	}
	var columns []column
	for item := range strings.SplitSeq(text, ",") {
		name, path, found := strings.Cut(item, "=")
		name, path = strings.TrimSpace(name), strings.TrimSpace(path)
		switch {
		case !found || path == "" || strings.HasPrefix(path, ".") || strings.HasSuffix(path, ".") || strings.Contains(path, ".."):
			return nil, fmt.Errorf("%q must be Column=path.to.field", strings.TrimSpace(item))
		case !identifier.MatchString(name):
			return nil, fmt.Errorf("%q is not a column name", name)
		case taken[strings.ToLower(name)]:
			return nil, fmt.Errorf("column %s is used twice or is one of Quiesce's own", name)
		}
		taken[strings.ToLower(name)] = true
		columns = append(columns, column{name: name, path: strings.Split(path, ".")})
	}
	return columns, nil
}
