package contract

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is what a system of record says about how new an account's state is:
// an integer that grows with every change, or a time. A change may carry one,
// and so may a response; where both do and compare, a response is known, and not
// guessed, to be new enough. The zero value is no version.
type Version struct {
	kind  versionKind
	value int64 // the integer, or nanoseconds since 1970
}

type versionKind uint8

const (
	versionNone versionKind = iota
	versionNumber
	versionTime
)

// ParseVersion reads an integer of 64 bits or an RFC 3339 time.
func ParseVersion(text string) (Version, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Version{kind: versionNumber, value: n}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	// Nanoseconds since 1970 end in these years.
	if err != nil || t.Year() < 1678 || t.Year() > 2261 {
		return Version{}, fmt.Errorf("version: want an integer or a time like 2026-11-30T12:00:00Z")
	}
	return Version{kind: versionTime, value: t.UnixNano()}, nil
}

// IsZero reports whether there is no version.
func (v Version) IsZero() bool { return v.kind == versionNone }

// String returns what [ParseVersion] reads; "" for no version.
func (v Version) String() string {
	switch v.kind {
	case versionNumber:
		return strconv.FormatInt(v.value, 10)
	case versionTime:
		return time.Unix(0, v.value).UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// MarshalText implements [encoding.TextMarshaler].
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (v *Version) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*v = Version{}
		return nil
	}
	parsed, err := ParseVersion(string(text))
	*v = parsed
	return err
}

// OlderThan reports that v is known to be older than w. Where either is missing
// or one is a number and the other a time, nothing is known.
func (v Version) OlderThan(w Version) bool {
	return v.kind == w.kind && v.kind != versionNone && v.value < w.value
}

// max returns the greater version. Versions that do not compare are met only
// while somebody changes what versions are; then it is the one of the later kind.
func (v Version) max(w Version) Version {
	if cmp.Or(cmp.Compare(v.kind, w.kind), cmp.Compare(v.value, w.value)) < 0 {
		return w
	}
	return v
}

// Unsettled returns the greatest version in ranges that a response of version v
// is known to be older than; zero if there is none.
func Unsettled(ranges []Range, v Version) Version {
	var newest Version
	for _, r := range ranges {
		if v.OlderThan(r.Version) {
			newest = newest.max(r.Version)
		}
	}
	return newest
}

// SplitAt is [Split] for a call whose response is of version v: what only the
// call's time would cover stays pending where the response is known to be older
// than the change. Versions do not touch what the row's positions prove.
func SplitAt(ranges []Range, call time.Time, v Version, settle time.Duration, through []Through) (covered, pending []Range) {
	for _, r := range ranges {
		at := call
		if v.OlderThan(r.Version) {
			at = time.Time{}
		}
		if Covers(r, at, settle, through) {
			covered = append(covered, r)
		} else {
			pending = append(pending, r)
		}
	}
	return covered, pending
}
