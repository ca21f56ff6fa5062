package spannermemory

import (
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quiesce-io/quiesce/activities/store"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

const database = "projects/p/instances/i/databases/d"

// serve starts a server and returns options that reach it.
func serve(t *testing.T) []option.ClientOption {
	t.Helper()
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	// What clients do with the variable decides how the product's store behaves.
	t.Setenv("SPANNER_EMULATOR_HOST", s.Addr)
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + s.Addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// TestStoreWorks runs the product's store on it: migrate, check, write, read.
func TestStoreWorks(t *testing.T) {
	options := serve(t)
	cfg := store.Default()
	cfg.Database = database
	s, err := store.Open(t.Context(), cfg, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "table Accounts is missing") {
		t.Errorf("check of an empty database: %v", err)
	}
	if done, err := s.Migrate(t.Context()); err != nil || len(done) != 2 {
		t.Fatalf("migrate: %q, %v", done, err)
	}
	if done, err := s.Migrate(t.Context()); err != nil || len(done) != 0 {
		t.Errorf("second migrate: %q, %v", done, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
	called := time.Now().UTC().Truncate(time.Microsecond)
	write := store.Sync{Account: "a", SyncID: "s1", Attempt: 1, CalledAt: called, Payload: []byte(`{"version":1}`)}
	if outcome, err := s.Write(t.Context(), write); err != nil || outcome != contract.OutcomeWritten {
		t.Fatalf("write: %s, %v", outcome, err)
	}
	again := write
	again.SyncID, again.CalledAt = "s2", called.Add(time.Second)
	if outcome, err := s.Write(t.Context(), again); err != nil || outcome != contract.OutcomeUnchanged {
		t.Errorf("same payload: %s, %v", outcome, err)
	}
	late := write
	late.SyncID = "s3"
	if outcome, err := s.Write(t.Context(), late); err != nil || outcome != contract.OutcomeFenced {
		t.Errorf("older call: %s, %v", outcome, err)
	}
	if row, err := s.Read(t.Context(), "a"); err != nil || row.SyncID != "s2" || !row.CalledAt.Equal(again.CalledAt) {
		t.Errorf("row %+v, %v", row, err)
	}
}

func TestQueriesThatAreNotUnderstoodAreErrors(t *testing.T) {
	options := serve(t)
	client, err := spanner.NewClientWithConfig(t.Context(), database, spanner.ClientConfig{DisableNativeMetrics: true}, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	count := func(sql string) (n int, err error) {
		err = client.Single().Query(t.Context(), spanner.NewStatement(sql)).Do(func(*spanner.Row) error { n++; return nil })
		return n, err
	}
	if n, err := count("SELECT 1"); n != 1 || err != nil {
		t.Errorf("a query that is passed on: %d rows, %v", n, err)
	}
	for _, sql := range []string{
		"SELECT COUNT(*) FROM INFORMATION_SCHEMA.TABLES GROUP BY TABLE_NAME",
		"SELECT TABLE_NAME FROM INFORMATION_SCHEMA.VIEWS JOIN INFORMATION_SCHEMA.TABLES",
		"SELECT NONSENSE FROM nowhere",
	} {
		if n, err := count(sql); spanner.ErrCode(err) != codes.InvalidArgument && spanner.ErrCode(err) != codes.NotFound {
			t.Errorf("%s: %d rows, %v", sql, n, err)
		}
	}
}

func TestView(t *testing.T) {
	var s schema
	err := s.apply([]string{
		"CREATE TABLE A (Id STRING(10) NOT NULL, At TIMESTAMP OPTIONS (allow_commit_timestamp = true)) PRIMARY KEY (Id DESC)",
		"CREATE TABLE B (Id INT64) PRIMARY KEY (Id)",
		"ALTER TABLE B ADD COLUMN Name STRING(MAX)",
		"ALTER TABLE A ADD ROW DELETION POLICY (OLDER_THAN(At, INTERVAL 3 DAY))",
	})
	if err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		"SELECT COLUMN_NAME, SPANNER_TYPE FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'B'":                                    "Id INT64 Name STRING(MAX)",
		"select COLUMN_NAME from information_schema.columns where LOWER(TABLE_NAME) = 'a' AND IS_NULLABLE = 'NO'":                    "Id",
		"SELECT COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMN_OPTIONS WHERE OPTION_VALUE = 'TRUE'":                                      "At",
		"SELECT COLUMN_NAME, COLUMN_ORDERING FROM INFORMATION_SCHEMA.INDEX_COLUMNS WHERE TABLE_NAME = 'A' ORDER BY ORDINAL_POSITION": "Id DESC",
		"SELECT ROW_DELETION_POLICY_EXPRESSION FROM INFORMATION_SCHEMA.TABLES":                                                       "OLDER_THAN(At, INTERVAL 3 DAY) NULL",
		"SELECT IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL FROM INFORMATION_SCHEMA.COLUMNS WHERE TABLE_NAME = 'A'":                "true false",
	} {
		result, err := s.query(sql, nil)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			continue
		}
		var got []string
		for _, v := range result.Values {
			switch x := v.AsInterface().(type) {
			case nil:
				got = append(got, "NULL")
			case bool:
				got = append(got, map[bool]string{true: "true", false: "false"}[x])
			case string:
				got = append(got, x)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
	if err := s.apply([]string{"ALTER TABLE B RENAME TO C"}); err == nil {
		t.Error("a change of schema that is not understood was accepted")
	}
}
