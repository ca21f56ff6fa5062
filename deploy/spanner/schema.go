// Package spanner holds the DDL of the tables, in the files beside it. They are
// the only place where the columns are written down: `worker migrate` runs them
// and the check at start reads the columns from them. They can be run by hand
// as they are.
//
// The names of the tables stand in backquotes, so that they can be replaced
// where a database has its own; the retention of the sync log is replaced as well. Each
// column stands on a line of its own.
package spanner

import _ "embed"

//go:embed accounts.sql
var accounts string

//go:embed account_syncs.sql
var accountSyncs string

// Accounts returns the statement that creates Accounts.
func Accounts() string { return accounts }

// AccountSyncs returns the statement that creates AccountSyncs.
func AccountSyncs() string { return accountSyncs }
