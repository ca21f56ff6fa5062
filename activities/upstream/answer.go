package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// errTooLarge is a body over the limit. What is beyond it is never read.
var errTooLarge = errors.New("body is too large")

// readBody reads at most limit bytes and fails if there are more. On a failure
// it returns what it has.
func readBody(body io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return raw, err
	}
	if int64(len(raw)) > limit {
		return raw[:limit], errTooLarge
	}
	return raw, nil
}

// failure says what an answer other than 2xx means.
func (c *Client) failure(res *http.Response, body []byte) (Response, error) {
	status := res.StatusCode
	e := &Error{Status: status, Reason: strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))}
	switch {
	case saysGone(status):
		switch {
		case !saysNotFound(res, body):
			// A router, a proxy or an ingress without a backend is speaking.
			// Believing it would mark every account deleted after one wrong
			// deployment upstream.
			e.Class, e.Reason = contract.ClassDenied, e.Reason+" with a page or text instead of JSON"
		case c.cfg.NotFound == NotFoundDelete:
			return Response{Status: status, Deleted: true}, nil
		default:
			e.Class = contract.ClassRefused
		}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		e.Class, e.RetryAfter = contract.ClassThrottled, retryAfter(res.Header, time.Now())
	case status >= 500:
		e.Class, e.RetryAfter = contract.ClassTransient, retryAfter(res.Header, time.Now())
	case status == http.StatusRequestTimeout:
		e.Class = contract.ClassTransient // the server's word for a timeout
	case status < 400, status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusProxyAuthRequired, isPage(res, body):
		e.Class = contract.ClassDenied // it speaks of us, not of the account
	default:
		e.Class = contract.ClassRefused
	}
	return Response{}, e
}

// retryAfter parses both forms of the header (RFC 9110, 10.2.3). A date is
// compared with the server's own Date where there is one, so that nobody's
// clock needs to be right. It is 0 where there is nothing to obey.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, at.Sub(now))
}

// notJSON returns what is wrong with the body of a 2xx, or "".
func notJSON(res *http.Response, body []byte) string {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return "an empty body"
	case isPage(res, body):
		return "a page instead of JSON"
	case !utf8.Valid(body):
		return "a body that is not UTF-8"
	case !json.Valid(body):
		return "malformed JSON"
	}
	return ""
}

// saysGone reports whether a status is of those that may mean a deleted account.
func saysGone(status int) bool { return status == http.StatusNotFound || status == http.StatusGone }

// saysNotFound reports whether a 404 or 410 may be upstream's own word about the
// account. An API says it with nothing or with JSON; "404 page not found" and
// "default backend - 404" come from whatever stands in front of it.
func saysNotFound(res *http.Response, body []byte) bool {
	return !isPage(res, body) && (len(bytes.TrimSpace(body)) == 0 || json.Valid(body))
}

func isPage(res *http.Response, body []byte) bool {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// bodyError classifies an answer whose body is needed and could not be read to its
// end.
func bodyError(status int, err error) error {
	if errors.Is(err, errTooLarge) {
		return &Error{
			Class: contract.ClassRefused, Status: status, Err: err,
			Reason: fmt.Sprintf("%d with a body above UPSTREAM_MAX_BYTES", status),
		}
	}
	e := transportError(err, "broken body")
	e.Status = status
	return e
}

// transportError classifies a call that got no complete answer. All of these may
// pass. The reason names the kind only, and of net/http's own error nothing is kept
// but its cause: its text holds the URL, and with it the account and whatever keys
// stand in the query.
func transportError(err error, otherwise string) *Error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	e := &Error{Class: contract.ClassTransient, Reason: otherwise, Err: err}
	var dns *net.DNSError
	var op *net.OpError
	var timeout net.Error
	var proxy proxyError
	tls := tlsReason(err)
	switch {
	case errors.Is(err, context.Canceled):
		e.Reason = "cancelled"
	case errors.As(err, &proxy):
		e.Reason = proxy.Error()
	case tls != "":
		e.Reason = tls
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Reason = "timeout"
	case errors.As(err, &dns):
		e.Reason = "host not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Reason = "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Reason = "connection reset"
	case errors.As(err, &op):
		e.Reason = "network error on " + op.Op
	}
	return e
}
