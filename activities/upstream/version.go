package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// versionSource is a parsed UPSTREAM_VERSION; the zero value is none.
type versionSource struct {
	header string
	path   []string
}

func parseVersionSource(text string) (versionSource, error) {
	if text == "" {
		return versionSource{}, nil
	}
	if name, ok := strings.CutPrefix(text, "header:"); ok && isToken(name) {
		return versionSource{header: name}, nil
	}
	if path, ok := strings.CutPrefix(text, "json:"); ok && path != "" {
		steps := strings.Split(path, ".")
		for _, step := range steps {
			if step == "" {
				return versionSource{}, errors.New("has an empty step in its path; want json:meta.version")
			}
		}
		return versionSource{path: steps}, nil
	}
	return versionSource{}, errors.New("must be json:PATH or header:NAME")
}

// of returns the version of an answer. One that is missing or cannot be read is
// none: it proves nothing, and the settle time decides as if there were no
// versions.
func (s versionSource) of(header http.Header, body []byte) contract.Version {
	text := ""
	switch {
	case s.header != "":
		text = header.Get(s.header)
	case s.path != nil:
		text = lookup(body, s.path)
	}
	v, _ := contract.ParseVersion(text)
	return v
}

// lookup follows path through objects to a string or a number, "" if there is
// none. A number is taken as it is written, so that a large one loses no digits.
func lookup(body []byte, path []string) string {
	raw := json.RawMessage(body)
	for _, step := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		raw = object[step]
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		var s string
		_ = json.Unmarshal(raw, &s)
		return s
	}
	return string(raw)
}
