package upstream

import "strings"

// escape percent-encodes every byte of an account key but the unreserved ones
// of RFC 3986, so that any key arrives as exactly one path segment (and as one
// value in a query). net/url's PathEscape leaves "." and ".." alone, which a
// client, a proxy or a server may take for the directory; a key of nothing but
// dots has its dots encoded too. (A server that decodes before it cleans paths
// still cannot tell, and will answer with a redirect or with 404; it is never
// followed to another account.)
func escape(account string) string {
	const hex = "0123456789ABCDEF"
	dots := strings.Trim(account, ".") == ""
	var b strings.Builder
	for i := range len(account) {
		c := account[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '_', c == '~', c == '.' && !dots:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
