package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/activities/store/emulator"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

func apply(t *testing.T, s *Store, statements ...string) {
	t.Helper()
	admin, err := database.NewDatabaseAdminClient(t.Context())
	require.NoError(t, err)
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: s.cfg.Database, Statements: statements})
	require.NoError(t, err)
	require.NoError(t, operation.Wait(t.Context()))
}

func TestColumnsAreReadFromTheDDL(t *testing.T) {
	names := func(columns []wanted) (out []string) {
		for _, c := range columns {
			out = append(out, c.name+" "+c.kind)
		}
		return out
	}
	require.Equal(t, []string{"AccountId STRING", "Payload STRING", "PayloadHash STRING", "Sources STRING", "CalledAt TIMESTAMP",
		"SyncId STRING", "Attempt INT64", "DeletedAt TIMESTAMP", "SyncedAt TIMESTAMP", "Version STRING"}, names(accountColumns()))
	require.Len(t, syncColumns(), 18)
}

func TestMigrateCreatesOnce(t *testing.T) {
	s := empty(t, nil)
	err := s.Check(t.Context())
	require.ErrorIs(t, err, ErrSchema)
	require.ErrorContains(t, err, "table Accounts is missing")
	require.ErrorContains(t, err, "table AccountSyncs is missing")
	require.ErrorContains(t, err, "worker migrate")
	_, err = s.Write(t.Context(), called(1, `{}`))
	require.ErrorIs(t, err, ErrUnavailable, "not before the schema was checked")

	ran, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Len(t, ran, 2)
	require.NoError(t, s.Check(t.Context()))
	ran, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)

	cfg := s.cfg
	cfg.SyncLogDays = 7
	again := reopen(t, cfg)
	ran, err = again.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ALTER TABLE `AccountSyncs` REPLACE ROW DELETION POLICY (OLDER_THAN(SyncedAt, INTERVAL 7 DAY))"}, ran)
	ran, err = again.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)
}

func TestMigrateAddsToTablesThatExistUnderOtherNames(t *testing.T) {
	s := empty(t, func(c *Config) { c.AccountsTable, c.SyncsTable = "Customers", "CustomerLog" })
	apply(t, s,
		"CREATE TABLE Customers (accountid STRING(36) NOT NULL, Name STRING(MAX), SyncedAt TIMESTAMP, Created TIMESTAMP NOT NULL DEFAULT (CURRENT_TIMESTAMP())) PRIMARY KEY (accountid)",
		"CREATE TABLE CustomerLog (AccountId STRING(MAX) NOT NULL, SyncedAt TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), SyncId STRING(64) NOT NULL) PRIMARY KEY (AccountId, SyncedAt DESC, SyncId)")
	err := s.Check(t.Context())
	require.ErrorContains(t, err, "table Customers: column Payload is missing")
	require.ErrorContains(t, err, "table Customers: column SyncedAt must have OPTIONS")
	require.ErrorContains(t, err, "table CustomerLog: column Outcome is missing")
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()))
	ran, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)
	require.Equal(t, contract.OutcomeWritten, write(t, s, called(1, `{}`)))
	require.Equal(t, []string{"written"}, logged(t, s))
}

// A table of version 1, as the first release created it.
func TestMigrateUpgrades(t *testing.T) {
	s := ready(t, nil)
	apply(t, s, "ALTER TABLE Accounts DROP COLUMN Version", "ALTER TABLE AccountSyncs DROP COLUMN Tries",
		"ALTER TABLE AccountSyncs DROP COLUMN Operator", "ALTER TABLE AccountSyncs DROP COLUMN Reason",
		"ALTER TABLE AccountSyncs DROP COLUMN Version")
	err := s.Check(t.Context())
	require.ErrorContains(t, err, "at schema 1, this build needs 2")
	require.ErrorContains(t, err, "table AccountSyncs: column Operator is missing")
	plan, err := s.Plan(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{plan.From, plan.To})
	ran, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, plan.Statements, ran)
	require.Equal(t, "ALTER TABLE `Accounts` ADD COLUMN Version STRING(64)", ran[0])
	require.Len(t, ran, 5)
	plan, err = s.Plan(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, Plan{From: 2, To: 2}, plan)
	write(t, s, called(1, `{}`))

	// What a later release adds is none of our business.
	apply(t, s, "ALTER TABLE Accounts ADD COLUMN Later STRING(MAX)")
	ran, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)
	require.NoError(t, s.Check(t.Context()))
	write(t, s, called(2, `{}`))
}

func TestMigrateDoesNotDeleteUnasked(t *testing.T) {
	s := ready(t, nil)
	old := called(1, `{}`)
	write(t, s, old)
	cfg := s.cfg
	cfg.SyncLogDays = 30
	shorter := reopen(t, cfg)
	_, err := shorter.Migrate(t.Context())
	require.NoError(t, err, "no row is that old")
	_, err = s.Client().Apply(t.Context(), []*spanner.Mutation{spanner.InsertMap("AccountSyncs", map[string]any{
		"AccountId": "a", "SyncedAt": time.Now().Add(-10 * 24 * time.Hour), "SyncId": "old",
	})})
	require.NoError(t, err)
	cfg.SyncLogDays = 7
	shorter = reopen(t, cfg)
	ran, err := shorter.Migrate(t.Context())
	require.ErrorIs(t, err, ErrLoss)
	require.ErrorContains(t, err, "SYNC_LOG_RETENTION=7")
	require.Empty(t, ran)
	plan, err := shorter.Plan(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, plan.Statements, 1)
	require.NoError(t, shorter.Apply(t.Context(), plan))

	// A table that never deleted anything, too.
	apply(t, s, "ALTER TABLE AccountSyncs DROP ROW DELETION POLICY")
	_, err = shorter.Migrate(t.Context())
	require.ErrorIs(t, err, ErrLoss)
	cfg.SyncLogDays = 3650
	_, err = reopen(t, cfg).Migrate(t.Context())
	require.NoError(t, err)
}

func TestCheckNamesWhatMigrateCannotMend(t *testing.T) {
	s := empty(t, func(c *Config) { c.Columns = "Email=email,Blob=b,Must=m,Gone=g" })
	apply(t, s,
		"CREATE TABLE Accounts (AccountId STRING(64) NOT NULL, Region STRING(8) NOT NULL, Payload JSON, Email STRING(MAX), Blob BYTES(MAX), Must STRING(MAX) NOT NULL) PRIMARY KEY (Region, AccountId)")
	ran, err := s.Migrate(t.Context())
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, "column Payload is JSON and must be STRING")
	require.ErrorContains(t, err, "the primary key is (Region, AccountId)")
	require.NotContains(t, err.Error(), "Gone", "a column that the user has to add is no conflict")
	require.Empty(t, ran, "nothing is half done")
	err = s.Check(t.Context())
	for _, want := range []string{
		"column Payload is JSON and must be STRING",
		"column Blob is BYTES(MAX); SPANNER_COLUMNS can fill",
		"column Must is NOT NULL",
		"column Gone is named in SPANNER_COLUMNS and missing",
		"column Region is NOT NULL without a default",
		"the primary key is (Region, AccountId) and must be (AccountId)",
	} {
		require.ErrorContains(t, err, want)
	}
}

// Tables that can be read, and whose rows Spanner would refuse: some with the first
// deleted account only.
func TestCheckNamesColumnsThatCouldNotBeWritten(t *testing.T) {
	s := empty(t, func(c *Config) {
		c.AccountsTable, c.SyncsTable, c.Columns = "Customers", "CustomerLog", "Email=email"
	})
	apply(t, s,
		"CREATE TABLE Customers (AccountId STRING(36) NOT NULL, Payload STRING(100) NOT NULL, payloadhash STRING(32), Sources STRING(1024), SyncId STRING(32) NOT NULL, "+
			"CalledAt TIMESTAMP NOT NULL, Attempt INT64 NOT NULL, SyncedAt TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), DeletedAt TIMESTAMP NOT NULL, Version STRING(128) NOT NULL DEFAULT ('none'), Email STRING(MAX) NOT NULL DEFAULT ('none')) PRIMARY KEY (AccountId)",
		"CREATE TABLE CustomerLog (AccountId STRING(36) NOT NULL, SyncedAt TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true), SyncId STRING(32) NOT NULL, "+
			"CalledAt TIMESTAMP NOT NULL DEFAULT (CURRENT_TIMESTAMP()), Outcome STRING(9), Operator STRING(MAX), Reason STRING(256)) PRIMARY KEY (AccountId, SyncedAt DESC, SyncId)")
	_, err := s.Migrate(t.Context())
	require.ErrorIs(t, err, ErrConflict)
	faults := strings.Split(err.Error(), "\n")[1:]
	require.Equal(t, []string{
		"table Customers: column Payload is NOT NULL and must be nullable: ALTER TABLE `Customers` ALTER COLUMN Payload STRING(100)",
		"table Customers: column PayloadHash is STRING(32), too short for what is written there: ALTER TABLE `Customers` ALTER COLUMN payloadhash STRING(64)",
		"table Customers: column Sources is STRING(1024), too short for what is written there: ALTER TABLE `Customers` ALTER COLUMN Sources STRING(MAX)",
		"table Customers: column SyncId is STRING(32), too short for what is written there: ALTER TABLE `Customers` ALTER COLUMN SyncId STRING(64) NOT NULL",
		"table Customers: column DeletedAt is NOT NULL and must be nullable: ALTER TABLE `Customers` ALTER COLUMN DeletedAt TIMESTAMP",
		"table Customers: column Version is NOT NULL and must be nullable: ALTER TABLE `Customers` ALTER COLUMN Version STRING(128)",
		"table CustomerLog: column SyncId is STRING(32), too short for what is written there: ALTER TABLE `CustomerLog` ALTER COLUMN SyncId STRING(64) NOT NULL",
		"table CustomerLog: column CalledAt is NOT NULL and must be nullable: ALTER TABLE `CustomerLog` ALTER COLUMN CalledAt TIMESTAMP",
		"table CustomerLog: column Outcome is STRING(9), too short for what is written there: ALTER TABLE `CustomerLog` ALTER COLUMN Outcome STRING(16)",
		"table CustomerLog: column Reason is STRING(256), too short for what is written there: ALTER TABLE `CustomerLog` ALTER COLUMN Reason STRING(MAX)",
	}, faults)
	err = s.Check(t.Context())
	for _, fault := range append(faults, "table Customers: column Email is NOT NULL; SPANNER_COLUMNS needs it nullable") {
		require.ErrorContains(t, err, fault)
	}

	// What the errors say is enough.
	var statements []string
	for _, fault := range faults {
		_, statement, _ := strings.Cut(fault, ": ALTER")
		statements = append(statements, "ALTER"+statement)
	}
	apply(t, s, append(statements, "ALTER TABLE Customers ALTER COLUMN Email STRING(MAX)")...)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Check(t.Context()))
	sync := called(1, `{}`)
	sync.SyncID = "00000000-0000-0000-0000-000000000001"
	require.Equal(t, contract.OutcomeWritten, write(t, s, sync))
	gone := called(2, "")
	gone.Deleted = true
	require.Equal(t, contract.OutcomeDeleted, write(t, s, gone))
	require.NoError(t, s.Discard(t.Context(), Discard{Account: "a", ID: "d", At: at(3)}))

	long := called(4, `{}`) // only this account is concerned
	long.Account = strings.Repeat("x", 37)
	_, err = s.Write(t.Context(), long)
	require.ErrorIs(t, err, ErrRefused)
}

func TestMissingDatabase(t *testing.T) {
	s := ready(t, nil)
	cfg := s.cfg
	cfg.Database += "-not"
	missing := reopen(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.ErrorContains(t, missing.Check(ctx), "the database does not exist")
	_, err := missing.Migrate(ctx)
	require.ErrorContains(t, err, "the database does not exist")
	_, err = missing.Read(ctx, "a")
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestMappedColumns(t *testing.T) {
	s := empty(t, func(c *Config) {
		c.Columns = "Email=email, City=address.city,Logins=logins,Score=score,Active=active,Seen=seen,Tags=tags,Born=born,Balance=balance"
	})
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	apply(t, s, "ALTER TABLE Accounts ADD COLUMN Email STRING(20)", "ALTER TABLE Accounts ADD COLUMN City STRING(MAX)",
		"ALTER TABLE Accounts ADD COLUMN Logins INT64", "ALTER TABLE Accounts ADD COLUMN Score FLOAT64",
		"ALTER TABLE Accounts ADD COLUMN Active BOOL", "ALTER TABLE Accounts ADD COLUMN Seen TIMESTAMP", "ALTER TABLE Accounts ADD COLUMN Tags JSON",
		"ALTER TABLE Accounts ADD COLUMN Born DATE", "ALTER TABLE Accounts ADD COLUMN Balance NUMERIC")
	require.NoError(t, s.Check(t.Context()))

	full := `{"email":"a@b","address":{"city":"Bern"},"logins":9007199254740993,"score":1.5,"active":true,"seen":"2026-11-30T12:00:00.000000001+01:00","tags":["x",{"y":1}],"born":"1912-06-23","balance":12345678901234567890.123456789}`
	write(t, s, called(1, full))
	require.Equal(t, "a@b", cell[string](t, s, "Email"))
	require.Equal(t, "Bern", cell[string](t, s, "City"))
	require.EqualValues(t, 9007199254740993, cell[int64](t, s, "Logins"))
	require.Equal(t, 1.5, cell[float64](t, s, "Score"))
	require.True(t, cell[bool](t, s, "Active"))
	require.Equal(t, time.Date(2026, 11, 30, 11, 0, 0, 1, time.UTC), cell[time.Time](t, s, "Seen").UTC())
	require.Equal(t, `["x",{"y":1}]`, cell[spanner.NullJSON](t, s, "Tags").String())
	require.Equal(t, "1912-06-23", cell[spanner.NullDate](t, s, "Born").String())
	require.Equal(t, "12345678901234567890.123456789", cell[spanner.NullNumeric](t, s, "Balance").String())
	money := called(1, `{"balance":"-0.10"}`)
	money.SyncID = "money"
	write(t, s, money)
	require.Equal(t, "-0.100000000", cell[spanner.NullNumeric](t, s, "Balance").String(), "money is often a string")

	null := func() {
		t.Helper()
		require.False(t, cell[spanner.NullString](t, s, "Email").Valid)
		require.False(t, cell[spanner.NullString](t, s, "City").Valid)
		require.False(t, cell[spanner.NullInt64](t, s, "Logins").Valid)
		require.False(t, cell[spanner.NullFloat64](t, s, "Score").Valid)
		require.False(t, cell[spanner.NullBool](t, s, "Active").Valid)
		require.False(t, cell[spanner.NullTime](t, s, "Seen").Valid)
		require.False(t, cell[spanner.NullJSON](t, s, "Tags").Valid)
		require.False(t, cell[spanner.NullDate](t, s, "Born").Valid)
		require.False(t, cell[spanner.NullNumeric](t, s, "Balance").Valid)
	}
	write(t, s, called(2, `{"email":null,"address":[]}`))
	null()
	write(t, s, called(3, full))
	gone := called(4, "")
	gone.Deleted = true
	write(t, s, gone)
	null()
	write(t, s, called(5, `[1]`))
	null()

	for _, payload := range []string{`{"email":1}`, `{"logins":1.5}`, `{"logins":"1"}`, `{"logins":9223372036854775808}`, `{"score":"x"}`,
		`{"active":"yes"}`, `{"seen":"yesterday"}`, `{"born":"23.6.1912"}`, `{"born":"1912-02-30"}`, `{"balance":"much"}`,
		`{"balance":0.1234567891}`, `{"balance":1e40}`, `{"score":1e999}`, `{"address":{"city":{}}}`, `{"email":"` + strings.Repeat("x", 21) + `"}`} {
		_, err := s.Write(t.Context(), called(6, payload))
		require.ErrorIs(t, err, ErrRefused, payload)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Regexp(t, `^field [a-z.]+ does not fit column [A-Z][a-z]+ [A-Z0-9]+`, e.Reason, "what to change, without what it holds")
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	require.ErrorContains(t, Default().Validate(), "SPANNER_DATABASE: is required")
	err := Config{Database: "x", AccountsTable: "a b", SyncsTable: "A B", Columns: "x"}.Validate()
	for _, name := range []string{"SPANNER_DATABASE", "SPANNER_ACCOUNTS_TABLE", "SPANNER_SYNCS_TABLE", "SPANNER_COLUMNS", "SYNC_LOG_RETENTION"} {
		require.ErrorContains(t, err, name)
	}
	for text, ok := range map[string]bool{
		"": true, "A=a": true, "A=a.b, B=c": true, "A": false, "A=": false, "A=a..b": false, "A=.a": false,
		"A=a,a=b": false, "Payload=x": false, "1=x": false, "A=a,": false,
	} {
		_, err := parseColumns(text)
		require.Equal(t, ok, err == nil, "%q: %v", text, err)
	}
}

// An unreachable Spanner is an error within the caller's time, at start as later.
func TestUnreachable(t *testing.T) {
	t.Setenv(emulator.HostVariable, "127.0.0.1:1")
	cfg := Default()
	cfg.Database = "projects/p/instances/i/databases/d"
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	s, err := Open(ctx, cfg)
	require.NoError(t, err)
	require.ErrorContains(t, s.Check(ctx), cfg.Database)
	_, err = s.Read(ctx, "a")
	require.ErrorIs(t, err, ErrUnavailable)
	s.columns.Store(&[]column{})
	_, err = s.Write(ctx, called(1, `{}`))
	require.ErrorIs(t, err, ErrUnavailable)
	s.Close()
	require.Less(t, time.Since(begin), 5*time.Second)
}
