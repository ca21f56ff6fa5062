// Package upstream reads one account from the system of record over HTTP.
//
// One [Client.Fetch] is one request on the wire, never more: redirects are not
// followed, and none of net/http's silent re-sends happen. Those exist for
// requests without a body on a reused connection that dies under them; a caller
// who pays for each call with a permit must not have two for one. See
// [Client.request] for how.
//
// The answer is either a [Response] or an [Error], whose class says what to
// think of it:
//
//	2xx with JSON          Response
//	404, 410               Response, Deleted (or refused: UPSTREAM_NOT_FOUND=park),
//	                       where the body is empty or JSON
//	429, 503               throttled, with Retry-After
//	other 5xx, 408         transient
//	timeouts, resets       transient, also in the middle of a body
//	401, 403, 407, 3xx     denied: it speaks of us, not of the account
//	other 4xx              refused
//	2xx that is not JSON   refused: malformed, too large
//	pages                  denied, whatever their status below 500
//	404, 410 otherwise     denied: that is a wrong URL, not an account that is gone
//
// [TLS] files, a token file and secret headers are how we prove who we are. Only
// the token and the client's certificate can be rotated without a restart. The
// usual proxy variables hold; a proxy that refuses is transient and named.
//
// Where upstream says how new an answer is, the Response carries that
// (UPSTREAM_VERSION). Package activities compares it with what changes carry.
//
// Teams whose system of record speaks something else implement [Fetcher].
package upstream
