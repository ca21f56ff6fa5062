package intake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Intake reads records. Safe for concurrent use.
type Intake struct {
	key     keySource
	version keySource
	header  string
	values  []string
	clock   string
}

// New returns an intake for a valid configuration.
func New(c Config) (*Intake, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	key, _ := parseKey(c.AccountKey)
	header, values, _ := parseFilter(c.Filter)
	version, _ := parseVersion(c.Version)
	return &Intake{key: key, version: version, header: header, values: values, clock: c.Clock}, nil
}

// Reading is what a record comes to. At most one of Account, Bad and Filtered
// is set.
type Reading struct {
	Account  string
	Time     time.Time // change time, never later than arrival
	Bad      string    // why no account can be derived, in one line, without payload
	Filtered bool      // not a change at all: RECORD_FILTER or a control record
	// Version is how new the change is, by CHANGE_VERSION; zero where the record
	// does not say, or not legibly: then the settle time decides alone.
	Version contract.Version
}

// Read reads a record that arrived at now.
func (in *Intake) Read(r *kgo.Record, now time.Time) Reading {
	if r.Attrs.IsControl() || !in.wanted(r) {
		return Reading{Filtered: true}
	}
	reading := Reading{Time: in.changeTime(r, now)}
	raw, problem := in.key.read(r)
	switch {
	case problem != "":
		reading.Bad = problem
	case len(raw) == 0:
		reading.Bad = "the account key is empty"
	case len(raw) > contract.MaxAccountKeyBytes:
		reading.Bad = fmt.Sprintf("the account key is %d bytes long, more than %d", len(raw), contract.MaxAccountKeyBytes)
	case !utf8.Valid(raw):
		reading.Bad = "the account key is not valid UTF-8"
	default:
		reading.Account = string(raw) // a copy: raw points into the fetch
		reading.Version = in.changeVersion(r)
	}
	return reading
}

func (in *Intake) changeVersion(r *kgo.Record) contract.Version {
	if in.version.header == "" && in.version.path == nil {
		return contract.Version{}
	}
	raw, problem := in.version.read(r)
	if problem != "" {
		return contract.Version{}
	}
	version, _ := contract.ParseVersion(string(raw))
	return version
}

func (in *Intake) wanted(r *kgo.Record) bool {
	if in.header == "" {
		return true
	}
	value, found := lastHeader(r, in.header)
	return found && slices.Contains(in.values, string(value))
}

// read returns the bytes at the source, or what is wrong.
func (s keySource) read(r *kgo.Record) ([]byte, string) {
	switch {
	case s.header != "":
		value, found := lastHeader(r, s.header)
		if !found {
			return nil, fmt.Sprintf("header %q is missing", s.header)
		}
		return value, ""
	case s.path != nil:
		return jsonKey(r.Value, s.path)
	case r.Key == nil:
		return nil, "the record has no key"
	}
	return r.Key, ""
}

// lastHeader returns the last of the headers by that name, as Kafka's own
// lastHeader does: producers override by appending.
func lastHeader(r *kgo.Record, name string) ([]byte, bool) {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// jsonKey follows path through objects to a string or a number. A number is
// taken as it is written, so that a large one loses no digits.
func jsonKey(value []byte, path []string) ([]byte, string) {
	at := strings.Join(path, ".")
	if value == nil {
		return nil, fmt.Sprintf("the value is null, so it has no %q", at)
	}
	if !json.Valid(value) {
		return nil, "the value is not valid JSON"
	}
	raw := json.RawMessage(value)
	for _, step := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, fmt.Sprintf("the value has no %q: %q is not in an object", at, step)
		}
		next, found := object[step]
		if !found {
			return nil, fmt.Sprintf("the value has no %q", at)
		}
		raw = next
	}
	raw = bytes.TrimSpace(raw)
	switch {
	case raw[0] == '"':
		return jsonString(raw)
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return raw, ""
	}
	return nil, fmt.Sprintf("%q in the value is neither a string nor a number", at)
}

// jsonString decodes a JSON string. The decoder replaces what is not UTF-8 by
// U+FFFD, which would give different accounts one key, so that is refused first.
func jsonString(raw json.RawMessage) ([]byte, string) {
	if !utf8.Valid(raw) || loneSurrogate(raw) {
		return nil, "the account key is not valid UTF-8"
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, "the account key is not a valid JSON string"
	}
	return []byte(s), ""
}

// loneSurrogate reports whether an escape in raw, a valid JSON string, is half of
// a surrogate pair and not next to the other half.
func loneSurrogate(raw json.RawMessage) bool {
	first := false // the character before is the first half of a pair
	for i := 0; i < len(raw); i++ {
		var escaped uint64
		if raw[i] == '\\' {
			if i++; raw[i] == 'u' {
				escaped, _ = strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
				i += 4
			}
		}
		if second := escaped >= 0xDC00 && escaped <= 0xDFFF; second != first {
			return true
		}
		first = escaped >= 0xD800 && escaped <= 0xDBFF
	}
	return false
}

// logAppendTime is the timestamp type of topics on which the broker sets it.
const logAppendTime = 1

// changeTime follows SETTLE_CLOCK. A time later than now would make the change
// settle later than it does, and one account's bad clock must not hold it back;
// -1 is a record without a timestamp.
func (in *Intake) changeTime(r *kgo.Record, now time.Time) time.Time {
	trusted := in.clock == ClockRecord || in.clock == ClockAuto && r.Attrs.TimestampType() == logAppendTime
	if !trusted || r.Timestamp.UnixMilli() < 0 || r.Timestamp.After(now) {
		return now
	}
	return r.Timestamp.UTC()
}
