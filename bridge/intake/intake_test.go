package intake

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

var now = time.UnixMilli(1_800_000_000_000).UTC()

func reader(t testing.TB, edit func(*Config)) *Intake {
	t.Helper()
	c := DefaultConfig()
	c.DeadLetterTopic = "dead"
	edit(&c)
	in, err := New(c)
	require.NoError(t, err)
	return in
}

func TestAccountKeys(t *testing.T) {
	header := func(pairs ...string) []kgo.RecordHeader {
		var hs []kgo.RecordHeader
		for i := 0; i < len(pairs); i += 2 {
			hs = append(hs, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return hs
	}
	long := strings.Repeat("k", contract.MaxAccountKeyBytes)
	for name, c := range map[string]struct {
		key     string
		record  kgo.Record
		account string
		bad     string
	}{
		"key":                      {"key", kgo.Record{Key: []byte("a/B.ü\x00")}, "a/B.ü\x00", ""},
		"key, tombstone":           {"key", kgo.Record{Key: []byte("a"), Value: nil}, "a", ""},
		"no key":                   {"key", kgo.Record{}, "", "no key"},
		"empty key":                {"key", kgo.Record{Key: []byte{}}, "", "empty"},
		"512 bytes":                {"key", kgo.Record{Key: []byte(long)}, long, ""},
		"513 bytes":                {"key", kgo.Record{Key: []byte(long + "k")}, "", "513 bytes"},
		"not UTF-8":                {"key", kgo.Record{Key: []byte{'a', 0xff}}, "", "UTF-8"},
		"header":                   {"header:acc", kgo.Record{Headers: header("x", "1", "acc", "7")}, "7", ""},
		"header, last wins":        {"header:acc", kgo.Record{Headers: header("acc", "6", "acc", "7")}, "7", ""},
		"header missing":           {"header:acc", kgo.Record{Key: []byte("k")}, "", `header "acc" is missing`},
		"json":                     {"json:a.id", kgo.Record{Value: []byte(`{"a":{"id":"x\u00fc"}}`)}, "xü", ""},
		"json number":              {"json:a.id", kgo.Record{Value: []byte(`{"a":{"id": 12345678901234567890 }}`)}, "12345678901234567890", ""},
		"json tombstone":           {"json:a.id", kgo.Record{Key: []byte("k")}, "", "null"},
		"json missing":             {"json:a.id", kgo.Record{Value: []byte(`{"a":{}}`)}, "", `no "a.id"`},
		"json not in an object":    {"json:a.id", kgo.Record{Value: []byte(`{"a":[1]}`)}, "", "not in an object"},
		"json object":              {"json:a", kgo.Record{Value: []byte(`{"a":{}}`)}, "", "neither a string nor a number"},
		"json null":                {"json:a", kgo.Record{Value: []byte(`{"a":null}`)}, "", "neither"},
		"json broken":              {"json:a", kgo.Record{Value: []byte(`{"a":"x"`)}, "", "not valid JSON"},
		"json empty":               {"json:a", kgo.Record{Value: []byte(`{"a":""}`)}, "", "empty"},
		"json not UTF-8":           {"json:a", kgo.Record{Value: []byte("{\"a\":\"x\xff\"}")}, "", "UTF-8"},
		"json half a surrogate":    {"json:a", kgo.Record{Value: []byte(`{"a":"x\ud800"}`)}, "", "UTF-8"},
		"json escaped before half": {"json:a", kgo.Record{Value: []byte(`{"a":"\\ufffd\ud800"}`)}, "", "UTF-8"},
		"json other half":          {"json:a", kgo.Record{Value: []byte(`{"a":"\udc00\ud800"}`)}, "", "UTF-8"},
		"json half before a pair":  {"json:a", kgo.Record{Value: []byte(`{"a":"\ud800\ud83d\ude00"}`)}, "", "UTF-8"},
		"json pair":                {"json:a", kgo.Record{Value: []byte(`{"a":"\ud83d\uDE00\\ud800"}`)}, "😀\\ud800", ""},
		"json replacement":         {"json:a", kgo.Record{Value: []byte(`{"a":"\uFFFD"}`)}, "\uFFFD", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := reader(t, func(cfg *Config) { cfg.AccountKey = c.key }).Read(&c.record, now)
			require.Equal(t, c.account, got.Account)
			if c.bad == "" {
				require.Empty(t, got.Bad)
			} else {
				require.Contains(t, got.Bad, c.bad)
			}
		})
	}
}

// The account must not point into the fetch: the buffer is reused and huge.
func TestKeyIsCopied(t *testing.T) {
	key := []byte("abc")
	got := reader(t, func(*Config) {}).Read(&kgo.Record{Key: key}, now)
	key[0] = 'X'
	require.Equal(t, "abc", got.Account)
}

func TestFilter(t *testing.T) {
	in := reader(t, func(c *Config) { c.Filter = "header:type=created,updated" })
	read := func(hs ...kgo.RecordHeader) bool {
		return in.Read(&kgo.Record{Key: []byte("k"), Headers: hs}, now).Filtered
	}
	require.False(t, read(kgo.RecordHeader{Key: "type", Value: []byte("updated")}))
	require.True(t, read(kgo.RecordHeader{Key: "type", Value: []byte("viewed")}))
	require.True(t, read(), "without the header")
	require.True(t, in.Read(&kgo.Record{}, now).Filtered, "a bad record that is filtered is no dead letter")
}

func TestControlRecordsAreNoChanges(t *testing.T) {
	control := kgo.RecordAttrsOpts{Control: true}
	got := reader(t, func(*Config) {}).Read(&kgo.Record{Attrs: kgo.NewRecordAttrs(control)}, now)
	require.Equal(t, Reading{Filtered: true}, got)
}

func TestChangeTime(t *testing.T) {
	appendTime := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: 1})
	createTime := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{})
	past, future := now.Add(-time.Hour), now.Add(time.Hour)
	for name, c := range map[string]struct {
		clock  string
		attrs  kgo.RecordAttrs
		stamp  time.Time
		expect time.Time
	}{
		"auto trusts the broker":                {ClockAuto, appendTime, past, past},
		"auto: a broker ahead of us":            {ClockAuto, appendTime, future, now},
		"auto distrusts a slow producer":        {ClockAuto, createTime, past, now},
		"auto distrusts a fast producer":        {ClockAuto, createTime, future, now},
		"arrival trusts nobody":                 {ClockArrival, appendTime, past, now},
		"record trusts a producer":              {ClockRecord, createTime, past, past},
		"record: never later than now":          {ClockRecord, createTime, future, now},
		"record: 1970 is a time":                {ClockRecord, createTime, time.UnixMilli(0), time.UnixMilli(0).UTC()},
		"record without a timestamp: -1":        {ClockRecord, createTime, time.UnixMilli(-1), now},
		"append time without a timestamp is -1": {ClockAuto, appendTime, time.UnixMilli(-1), now},
	} {
		t.Run(name, func(t *testing.T) {
			in := reader(t, func(cfg *Config) { cfg.Clock = c.clock })
			got := in.Read(&kgo.Record{Key: []byte("k"), Attrs: c.attrs, Timestamp: c.stamp}, now)
			require.Equal(t, c.expect, got.Time)
		})
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	err := Config{AccountKey: "json:a..b", Filter: "x", Clock: "now", BadRecord: "ignore"}.Validate()
	for _, name := range []string{"ACCOUNT_KEY=json:a..b", "RECORD_FILTER=x", "SETTLE_CLOCK=now", "BAD_RECORD=ignore"} {
		require.ErrorContains(t, err, name)
	}
	require.ErrorContains(t, DefaultConfig().Validate(), "DEAD_LETTER_TOPIC")
	_, err = New(DefaultConfig())
	require.Error(t, err)
}

func FuzzJSONKey(f *testing.F) {
	for _, s := range []string{`{"a":{"b":"x"}}`, `{"a":{"b":-1e9}}`, `{"a":{"b":"\ud800\udc00"}}`, `{"a":1}`, "", "null", "\xff"} {
		f.Add([]byte(s))
	}
	in := reader(f, func(c *Config) { c.AccountKey = "json:a.b" })
	f.Fuzz(func(t *testing.T, value []byte) {
		got := in.Read(&kgo.Record{Value: value}, now)
		require.NotEqual(t, got.Account == "", got.Bad == "", "either an account or a reason")
		require.True(t, utf8.ValidString(got.Account))
		require.LessOrEqual(t, len(got.Account), contract.MaxAccountKeyBytes)
		if got.Account == "" {
			return
		}
		// A decoder that is not ours must find the same.
		var v map[string]any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		require.NoError(t, d.Decode(&v))
		switch b := v["a"].(map[string]any)["b"].(type) {
		case string:
			require.Equal(t, b, got.Account)
		case json.Number:
			require.Equal(t, b.String(), got.Account)
		default:
			t.Fatalf("account %q from %T", got.Account, b)
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add([]byte("a"))
	f.Add([]byte{0xff})
	f.Add([]byte(strings.Repeat("ü", 257)))
	in := reader(f, func(*Config) {})
	f.Fuzz(func(t *testing.T, key []byte) {
		got := in.Read(&kgo.Record{Key: key}, now)
		valid := len(key) > 0 && len(key) <= contract.MaxAccountKeyBytes && utf8.Valid(key)
		require.Equal(t, valid, got.Bad == "")
		if valid {
			require.Equal(t, string(key), got.Account)
		}
	})
}

func TestChangesSayHowNewTheyAre(t *testing.T) {
	for _, c := range []struct {
		source, header, value, want string
	}{
		{"", "7", `{"v":8}`, ""},
		{"header:version", "7", "", "7"},
		{"header:version", "seven", "", ""},
		{"json:v", "", `{"v":8}`, "8"},
		{"json:meta.at", "", `{"meta":{"at":"2026-11-30T13:00:00+01:00"}}`, "2026-11-30T12:00:00Z"},
		{"json:v", "", `{"v":null}`, ""},
		{"json:v", "", "no JSON", ""},
		{"json:v", "", "", ""},
	} {
		in := reader(t, func(cfg *Config) { cfg.Version = c.source })
		record := kgo.Record{Key: []byte("a"), Value: []byte(c.value), Headers: []kgo.RecordHeader{{Key: "version", Value: []byte(c.header)}}}
		got := in.Read(&record, now)
		require.Equal(t, "a", got.Account, "whatever its version is")
		require.Equal(t, c.want, got.Version.String(), "%+v", c)
	}
	for _, source := range []string{"key", "header:", "json:a..b", "v"} {
		c := DefaultConfig()
		c.BadRecord, c.Version = BadSkip, source
		require.ErrorContains(t, c.Validate(), "CHANGE_VERSION="+source)
	}
}
