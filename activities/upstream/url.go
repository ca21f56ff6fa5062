package upstream

import (
	"net/url"
	"strings"
)

// URL is a template, in whose path or query {account} is replaced by the
// percent-encoded key. What else stands in its query may be a key of another kind,
// so printed it shows names only.
type URL string

// placeholder is replaced by the escaped account.
const placeholder = "{account}"

// For returns the URL of an account.
func (u URL) For(account string) string {
	return strings.ReplaceAll(string(u), placeholder, escape(account))
}

// String returns the template without credentials.
func (u URL) String() string {
	shown := string(u)
	if parsed, err := url.Parse(shown); err == nil && parsed.User != nil {
		shown = parsed.Redacted()
	} else if scheme, rest, ok := strings.Cut(shown, "://"); ok && err != nil {
		if at := strings.LastIndex(rest, "@"); at >= 0 { // part of what cannot be read may be a password
			shown = scheme + "://[redacted]@" + rest[at+1:]
		}
	}
	before, query, found := strings.Cut(shown, "?")
	if !found {
		return shown
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, value, _ := strings.Cut(part, "="); value != placeholder {
			if value == "" && part == name {
				name = "" // the whole of it may be the key
			}
			parts[i] = name + "=[redacted]"
		}
	}
	return before + "?" + strings.Join(parts, "&")
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *URL) UnmarshalText(text []byte) error { *u = URL(text); return nil }

// MarshalText implements [encoding.TextMarshaler].
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// problem returns what is wrong with the template, or "".
func (u URL) problem() string {
	template := string(u)
	if template == "" {
		return "is required: for example https://crm.internal/v1/accounts/" + placeholder
	}
	before, after, found := strings.Cut(template, placeholder)
	if !found {
		return "must contain " + placeholder + " where the account's key goes"
	}
	parsed, err := url.Parse(before + "x" + strings.ReplaceAll(after, placeholder, "x"))
	switch {
	case err != nil:
		return "is not a URL"
	case parsed.Scheme != "http" && parsed.Scheme != "https":
		return "must begin with http:// or https://"
	case parsed.Host == "":
		return "has no host"
	case parsed.User != nil:
		return "must not hold credentials: put a token into UPSTREAM_TOKEN_FILE"
	case parsed.Fragment != "":
		return "must not have a fragment: it is never sent"
	}
	// The first slash after the scheme begins the path. A placeholder before it
	// would let a change choose the host that is called.
	if !strings.ContainsAny(before[len(parsed.Scheme)+len("://"):], "/?") {
		return placeholder + " must stand in the path or the query"
	}
	return ""
}
