package startup

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
)

// startTimeout is what faulty starts are given, bound how long they may take
// with it on a machine that is busy. The default is longer than the bound.
const (
	startTimeout = 4 * time.Second
	bound        = 25 * time.Second
)

// fault is one thing wrong.
type fault struct {
	name   string
	binary string
	args   []string // nil: run
	env    []string
	code   int
	says   []string // in the error: the variable with its value, and what to do
	list   bool     // the error lists what is wrong, in more than one line
}

// check starts the process with the fault and holds its end against it.
func (f fault) check(t *testing.T) {
	t.Parallel()
	args := f.args
	if args == nil {
		args = []string{"run"}
	}
	p := launch(t, f.binary, args, append(usual("START_TIMEOUT="+startTimeout.String()), f.env...))
	took := ends(t, p, bound)
	if code := p.ExitCode(); code != f.code {
		t.Errorf("exit code %d, want %d", code, f.code)
	}
	words := lastWords(t, p, f.binary+" "+strings.Join(commandOf(args), " "))
	t.Logf("after %s: %s", took.Round(time.Millisecond), strings.TrimSpace(words))
	for _, text := range f.says {
		if !strings.Contains(words, text) {
			t.Errorf("the error does not say %q", text)
		}
	}
	if lines := strings.Count(words, "\n"); lines != 1 && !f.list {
		t.Errorf("the error takes %d lines", lines)
	}
	if output, _ := p.Output(); strings.Contains(output, "goroutine ") {
		t.Error("there is a stack trace")
	}
}

// commandOf are the words before arguments and flags.
func commandOf(args []string) (words []string) {
	for _, word := range args {
		if word != strings.ToLower(word) || strings.HasPrefix(word, "-") {
			break
		}
		words = append(words, word)
	}
	return words
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	mute, _ := silent(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	if err := os.WriteFile(garbage, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}

	var faults []fault
	for _, binary := range []string{"bridge", "worker"} {
		add := func(name string, code int, env []string, says ...string) {
			faults = append(faults, fault{name: binary + "/" + name, binary: binary, code: code, env: env, says: says})
		}
		add("Temporal refuses connections", 1, []string{"TEMPORAL_ADDRESS=" + unused}, "TEMPORAL_ADDRESS="+unused, "name another")
		add("Temporal never answers", 1, []string{"TEMPORAL_ADDRESS=" + mute}, "TEMPORAL_ADDRESS="+mute, "name another")
		add("Temporal's name does not resolve", 1, []string{"TEMPORAL_ADDRESS=nobody.invalid:7233"}, "TEMPORAL_ADDRESS=nobody.invalid:7233")
		add("TLS to Temporal without TLS", 1, []string{"TEMPORAL_TLS=true"}, "TEMPORAL_ADDRESS="+world.Temporal.Address)
		add("no such namespace", 1, []string{"TEMPORAL_NAMESPACE=nowhere"}, "TEMPORAL_NAMESPACE=nowhere", "TEMPORAL_ADDRESS="+world.Temporal.Address, "namespace create")
		add("no such certificate", 2, []string{"TEMPORAL_TLS_CLIENT_CERT_PATH=/nowhere.pem", "TEMPORAL_TLS_CLIENT_KEY_PATH=/nowhere.pem"}, "TEMPORAL_", "/nowhere.pem")
		add("the status port is taken", 2, []string{"STATUS_ADDR=" + taken.Addr().String()}, "STATUS_ADDR="+taken.Addr().String(), "in use", "another")
		add("the status address is none", 2, []string{"STATUS_ADDR=nonsense"}, "STATUS_ADDR=nonsense")
		add("the agent's name does not resolve", 2, []string{"DD_AGENT_HOST=nobody.invalid"}, "DD_AGENT_HOST=nobody.invalid", "unset it")
		add("the agent's URL is none", 2, []string{"DD_DOGSTATSD_URL=nonsense"}, "DD_DOGSTATSD_URL=nonsense")
		add("a missing setting", 2, []string{"PIPELINE="}, "PIPELINE: is required")
		faults = append(faults,
			fault{name: binary + "/a misspelt flag", binary: binary, args: []string{"run", "--log-levle=info"}, code: 2, says: []string{"there is no flag --log-levle; did you mean --log-level?"}},
			fault{name: binary + "/an argument too many", binary: binary, args: []string{"run", "Fast"}, code: 2, says: []string{`unexpected argument "Fast"`}})
	}
	faults = append(faults, bridgeFaults(mute, garbage)...)
	faults = append(faults, workerFaults(t, mute, garbage)...)
	for _, f := range faults {
		t.Run(f.name, f.check)
	}
}

func bridgeFaults(mute, garbage string) []fault {
	brokers := "KAFKA_BROKERS=" + strings.Join(world.Kafka.Brokers, ",")
	faults := []fault{
		{name: "Kafka refuses connections", env: []string{"KAFKA_BROKERS=" + unused}, code: 1, says: []string{"KAFKA_BROKERS=" + unused, "name others"}},
		{name: "Kafka never answers", env: []string{"KAFKA_BROKERS=" + mute}, code: 1, says: []string{"KAFKA_BROKERS=" + mute, "name others"}},
		{name: "Kafka's name does not resolve", env: []string{"KAFKA_BROKERS=nobody.invalid:9092"}, code: 1, says: []string{"KAFKA_BROKERS=nobody.invalid:9092"}},
		{name: "TLS to Kafka without TLS", env: []string{"KAFKA_TLS=true"}, code: 1, says: []string{brokers}},
		{name: "no such topic", env: []string{"KAFKA_TOPICS=nowhere"}, code: 1, says: []string{`KAFKA_TOPICS`, `"nowhere"`, brokers, "create it"}},
		{name: "no such dead-letter topic", env: []string{"DEAD_LETTER_TOPIC=nowhere"}, code: 1, says: []string{"DEAD_LETTER_TOPIC", `"nowhere"`, brokers, "create it"}},
		{name: "a CA file that holds none", env: []string{"KAFKA_TLS=true", "KAFKA_TLS_CA_FILE=" + garbage}, code: 2, says: []string{"KAFKA_TLS_CA_FILE=" + garbage}},
		{name: "a secret's file that is not there", env: []string{"KAFKA_SASL_MECHANISM=PLAIN", "KAFKA_SASL_USERNAME=u", "KAFKA_SASL_PASSWORD_FILE=/nowhere"}, code: 2, says: []string{"KAFKA_SASL_PASSWORD_FILE=/nowhere"}, list: true},
		{name: "contradictory settings", env: []string{"SETTLE_DELAY=1s", "SETTLE_TIME=5s", "PIPELINE=No Name", "EXECUTORS=0", "PARK_AFTER=9", "KAFKA_START=yesterday"}, code: 2, list: true,
			says: []string{"SETTLE_DELAY=1s: ", "PIPELINE=No Name: ", "EXECUTORS=0: ", "set PARK_AFTER to", "KAFKA_START=yesterday: "}},
		{name: "a record nobody can be told of", env: []string{"BAD_RECORD=dead-letter", "DEAD_LETTER_TOPIC="}, code: 2, says: []string{"DEAD_LETTER_TOPIC", "BAD_RECORD"}},
		{name: "commands/replay list", args: []string{"replay", "list"}, env: []string{"TEMPORAL_ADDRESS=" + mute}, code: 1, says: []string{"TEMPORAL_ADDRESS=" + mute}},
	}
	for i := range faults {
		faults[i].binary, faults[i].name = "bridge", "bridge/"+faults[i].name
	}
	return faults
}

func workerFaults(t *testing.T, mute, garbage string) []fault {
	database := "SPANNER_DATABASE=" + world.Spanner.Database
	emulator := "SPANNER_EMULATOR_HOST=" + world.Spanner.EmulatorHost
	empty := tables(t, "startup-empty")
	lacking := tables(t, "startup-lacking", "ALTER TABLE Accounts DROP COLUMN Attempt")
	wrong := tables(t, "startup-wrong", "ALTER TABLE Accounts DROP COLUMN PayloadHash", "ALTER TABLE Accounts ADD COLUMN PayloadHash BOOL")
	faults := []fault{
		{name: "Spanner refuses connections", env: []string{"SPANNER_EMULATOR_HOST=" + unused}, code: 1, says: []string{"SPANNER_EMULATOR_HOST=" + unused, database, "name another"}},
		{name: "Spanner never answers", env: []string{"SPANNER_EMULATOR_HOST=" + mute}, code: 1, says: []string{"SPANNER_EMULATOR_HOST=" + mute, database, "name another"}},
		{name: "no such database", env: []string{database + "-not"}, code: 1, says: []string{database + "-not", emulator, "does not exist", "worker migrate"}},
		{name: "a database that is no name", env: []string{"SPANNER_DATABASE=accounts"}, code: 2, says: []string{"SPANNER_DATABASE=accounts: must look like"}},
		{name: "no tables", env: []string{"SPANNER_DATABASE=" + empty}, code: 1, list: true, says: []string{empty, "Accounts is missing", "AccountSyncs is missing", "worker migrate"}},
		{name: "a missing column", env: []string{"SPANNER_DATABASE=" + lacking}, code: 1, list: true, says: []string{lacking, "Accounts", "column Attempt is missing", "worker migrate"}},
		{name: "a column of another type", env: []string{"SPANNER_DATABASE=" + wrong}, code: 1, list: true, says: []string{wrong, "column PayloadHash is BOOL and must be "}},
		{name: "a mapped column that is not there", env: []string{"SPANNER_COLUMNS=Email=email"}, code: 1, list: true, says: []string{"SPANNER_COLUMNS", "Email", "ALTER TABLE"}},
		{name: "no such CA file", env: []string{"UPSTREAM_URL=https://127.0.0.1:1/{account}", "UPSTREAM_TLS_CA_FILE=" + garbage}, code: 2, says: []string{"UPSTREAM_TLS_CA_FILE=" + garbage}},
		{name: "contradictory settings", env: []string{"UPSTREAM_RPS=many", "PIPELINE=No Name", "SYNC_SLOTS=0", "UPSTREAM_NOT_FOUND=ignore"}, code: 2, list: true,
			says: []string{"UPSTREAM_RPS=many: ", "PIPELINE=No Name: ", "SYNC_SLOTS=0: ", "UPSTREAM_NOT_FOUND=ignore: "}},
	}
	for _, address := range []string{unused, mute} {
		for _, command := range []string{"migrate", "settle report", "audit Alice", "audit verify", "audit export"} {
			faults = append(faults, fault{
				name: fmt.Sprintf("commands/%s with Spanner at %s", command, address), args: strings.Fields(command),
				env: []string{"SPANNER_EMULATOR_HOST=" + address}, code: 1, says: []string{"SPANNER_EMULATOR_HOST=" + address, "name another"},
			})
		}
	}
	for _, command := range []string{"parked list", "parked retry Alice", "budget show", "versions list", "audit Alice", "audit verify", "histories verify"} {
		faults = append(faults, fault{
			name: "commands/" + command + " with a silent Temporal", args: strings.Fields(command),
			env: []string{"TEMPORAL_ADDRESS=" + mute}, code: 1, says: []string{"TEMPORAL_ADDRESS=" + mute},
		})
	}
	for i := range faults {
		faults[i].binary, faults[i].name = "worker", "worker/"+faults[i].name
	}
	return faults
}

// tables creates a database whose tables are changed by the statements after
// they were migrated; without statements it stays empty.
func tables(t *testing.T, id string, statements ...string) (database string) {
	t.Helper()
	database, err := world.CreateDatabase(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(statements) == 0 {
		return database
	}
	p := launch(t, "worker", []string{"migrate"}, usual("SPANNER_DATABASE="+database))
	if ends(t, p, patience); p.ExitCode() != 0 {
		t.Fatalf("migrate: exit code %d", p.ExitCode())
	}
	admin, err := databaseadmin.NewDatabaseAdminClient(t.Context(), world.Spanner.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	operation, err := admin.UpdateDatabaseDdl(t.Context(), &databasepb.UpdateDatabaseDdlRequest{Database: database, Statements: statements})
	if err == nil {
		err = operation.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return database
}

// TestMigrateMendsColumns: what the error of a missing column says works.
func TestMigrateMendsColumns(t *testing.T) {
	t.Parallel()
	env := usual("SPANNER_DATABASE=" + tables(t, "startup-mended", "ALTER TABLE Accounts DROP COLUMN Attempt"))
	p := launch(t, "worker", []string{"migrate"}, env)
	ends(t, p, patience)
	output, _ := p.Output()
	if p.ExitCode() != 0 || !strings.Contains(output, "ADD COLUMN Attempt") {
		t.Errorf("exit code %d\n%s", p.ExitCode(), output)
	}
	start(t, "worker", env).awaitReady()
}

// TestMisspeltVariable: it may be somebody else's, so it is a warning.
func TestMisspeltVariable(t *testing.T) {
	t.Parallel()
	for binary, variable := range map[string]string{"bridge": "KAFKA_BROKER", "worker": "UPSTREAM_TIMEOUTS"} {
		r := start(t, binary, append(slices.Clone(usual()), variable+"=1s")).awaitReady()
		output, _ := r.Output()
		if want := binary + " run: warning: " + variable + " is set and means nothing here; did you mean "; !strings.Contains(output, want) {
			t.Errorf("%s does not warn:\n%s", binary, output)
		}
	}
}

// TestUpstreamThatIsNotThereIsAWarning: accounts wait for it, at start as later on.
func TestUpstreamThatIsNotThereIsAWarning(t *testing.T) {
	t.Parallel()
	const url = "UPSTREAM_URL=http://127.0.0.1:1/{account}"
	r := start(t, "worker", append(slices.Clone(usual()), url)).awaitReady()
	output, _ := r.Output()
	for _, text := range []string{"upstream cannot be reached", url, "connection refused"} {
		if !strings.Contains(output, text) {
			t.Errorf("it does not say %q:\n%s", text, output)
		}
	}
}
