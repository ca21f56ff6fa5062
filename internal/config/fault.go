package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Fault is one thing wrong with one setting. A Validate method returns all the
// faults it finds, joined, so that an operator mends them in one go.
type Fault struct {
	Name    string // environment variable
	Value   string // as given; empty when it is missing or secret
	Problem string // what is wrong and what would be right
}

// Error returns NAME=value: problem.
func (f Fault) Error() string {
	if f.Value == "" {
		return f.Name + ": " + f.Problem
	}
	return f.Name + "=" + f.Value + ": " + f.Problem
}

// Secret is a setting that must not be printed, logged or marshalled.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret, and shows whether there is one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// GoString implements [fmt.GoStringer], for %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText implements [encoding.TextMarshaler].
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Bytes is an amount of memory. Its text form is a whole number with an
// optional unit: B, KiB, MiB or GiB.
type Bytes int64

var units = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Bytes) UnmarshalText(text []byte) error {
	number, size := strings.TrimSpace(string(text)), Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > int64(1<<62)/int64(size) {
		return fmt.Errorf("%q is not a size: want a whole number with B, KiB, MiB or GiB", text)
	}
	*b = Bytes(n) * size
	return nil
}

// String returns the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units {
		if b != 0 && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return "0B"
}

// MarshalText implements [encoding.TextMarshaler].
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }
