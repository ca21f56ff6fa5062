// Package spannermemory is Spanner's in-memory fake, spannertest, with what it
// lacks for running Quiesce: answers to queries on INFORMATION_SCHEMA, by which
// Quiesce checks its tables. It is the last resort for machines on which no
// emulator is installed.
//
//	client ──▶ proxy ──▶ spannertest
//	             │
//	             └─ queries on INFORMATION_SCHEMA, from the DDL that went through
//
// The proxy passes all else on as it is. The DDL that it has seen is the
// authority on the schema: spannertest forgets column options.
package spannermemory
