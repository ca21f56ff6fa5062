package intake

import (
	"errors"
	"strings"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Config says how records are read.
type Config struct {
	AccountKey      string `env:"ACCOUNT_KEY" help:"Where a record names its account: key, header:NAME or json:PATH (dotted, in the value)."`
	Filter          string `env:"RECORD_FILTER" help:"header:NAME=A,B: only records whose header is A or B are changes; empty: all are."`
	Clock           string `env:"SETTLE_CLOCK" help:"What counts as the time of a change: auto (the broker's timestamp where the topic has one, else arrival), arrival, or record (trusts producers' clocks)."`
	Version         string `env:"CHANGE_VERSION" help:"Where a record says how new the change is, an integer or an RFC 3339 time: header:NAME or json:PATH; with the worker's UPSTREAM_VERSION, an answer that is older is not written. Empty: the settle time decides alone."`
	BadRecord       string `env:"BAD_RECORD" help:"What becomes of a record without a usable account key: dead-letter, stop (its partition) or skip."`
	DeadLetterTopic string `env:"DEAD_LETTER_TOPIC" help:"Topic for records no account can be derived from; required for BAD_RECORD=dead-letter."`
}

// Choices of SETTLE_CLOCK and BAD_RECORD.
const (
	ClockAuto    = "auto"
	ClockArrival = "arrival"
	ClockRecord  = "record"

	BadDeadLetter = "dead-letter"
	BadStop       = "stop"
	BadSkip       = "skip"
)

// DefaultConfig returns the defaults. They lack DEAD_LETTER_TOPIC, which only
// the operator knows.
func DefaultConfig() Config {
	return Config{AccountKey: "key", Clock: ClockAuto, BadRecord: BadDeadLetter}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	fault := func(name, value, problem string) {
		faults = append(faults, config.Fault{Name: name, Value: value, Problem: problem})
	}
	if _, err := parseKey(c.AccountKey); err != nil {
		fault("ACCOUNT_KEY", c.AccountKey, err.Error())
	}
	if _, _, err := parseFilter(c.Filter); err != nil {
		fault("RECORD_FILTER", c.Filter, err.Error())
	}
	switch c.Clock {
	case ClockAuto, ClockArrival, ClockRecord:
	default:
		fault("SETTLE_CLOCK", c.Clock, "must be auto, arrival or record")
	}
	if _, err := parseVersion(c.Version); err != nil {
		fault("CHANGE_VERSION", c.Version, err.Error())
	}
	switch c.BadRecord {
	case BadStop, BadSkip:
	case BadDeadLetter:
		if c.DeadLetterTopic == "" {
			fault("DEAD_LETTER_TOPIC", "", "is required with BAD_RECORD=dead-letter; or choose BAD_RECORD=stop or skip")
		}
	default:
		fault("BAD_RECORD", c.BadRecord, "must be dead-letter, stop or skip")
	}
	return errors.Join(faults...)
}

// keySource is a parsed ACCOUNT_KEY. At most one field is set; none means the
// record key.
type keySource struct {
	header string
	path   []string
}

func parseKey(s string) (keySource, error) {
	if s == "key" {
		return keySource{}, nil
	}
	if name, ok := strings.CutPrefix(s, "header:"); ok && name != "" {
		return keySource{header: name}, nil
	}
	if path, ok := strings.CutPrefix(s, "json:"); ok {
		parts := strings.Split(path, ".")
		for _, p := range parts {
			if p == "" {
				return keySource{}, errors.New("has an empty step in its path; want json:account.id")
			}
		}
		return keySource{path: parts}, nil
	}
	return keySource{}, errors.New("must be key, header:NAME or json:PATH")
}

// parseVersion parses CHANGE_VERSION, which is of the same form; no field set
// means that there are no versions.
func parseVersion(s string) (keySource, error) {
	if s == "" {
		return keySource{}, nil
	}
	source, err := parseKey(s)
	if err == nil && source.header == "" && source.path == nil {
		err = errors.New("must be header:NAME or json:PATH")
	}
	return source, err
}

func parseFilter(s string) (header string, values []string, err error) {
	if s == "" {
		return "", nil, nil
	}
	rest, ok := strings.CutPrefix(s, "header:")
	name, list, found := strings.Cut(rest, "=")
	if !ok || !found || name == "" || list == "" {
		return "", nil, errors.New("must be header:NAME=A,B")
	}
	return name, strings.Split(list, ","), nil
}
