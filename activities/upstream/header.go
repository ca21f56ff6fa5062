package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// parseHeaders reads "Name: value" lines. Its errors name headers and never
// values, which may be secret.
func parseHeaders(text string) (http.Header, error) {
	headers := http.Header{}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !found || !isToken(name):
			return nil, fmt.Errorf("line %d is not Name: value", n+1)
		case value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, fmt.Errorf("header %s: its value is empty or holds control characters", name)
		}
		switch http.CanonicalHeaderKey(name) {
		case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Accept-Encoding", "Upgrade", "Trailer", "Te", "Expect":
			return nil, fmt.Errorf("header %s is the client's own business", name)
		}
		headers.Add(name, value)
	}
	return headers, nil
}

// isToken reports whether s can be a header's name (RFC 9110, 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

// headersProblem returns what is wrong with UPSTREAM_HEADERS, or nil.
func (c Config) headersProblem() error {
	headers, err := parseHeaders(c.Headers.Reveal())
	if err == nil && c.TokenFile != "" && headers.Get("Authorization") != "" {
		return errors.New("holds Authorization, which UPSTREAM_TOKEN_FILE sets as well: choose one")
	}
	return err
}
