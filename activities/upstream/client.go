package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Client is a [Fetcher] over HTTP. It is safe for concurrent use.
type Client struct {
	cfg     Config
	http    *http.Client
	token   tokenFile
	headers http.Header
	version versionSource
	tls     error // why there can be no connection

	sendWithin time.Duration // contract.SendWithin, less in tests
}

// New returns a Client for a valid cfg. It makes no connection. The usual proxy
// variables are honoured. Files that cannot be read are reported by Check, and by
// every Fetch.
func New(cfg Config) *Client {
	secure, err := cfg.TLS.config()
	headers, _ := parseHeaders(cfg.Headers.Reveal()) // Validate has seen them
	version, _ := parseVersionSource(cfg.Version)
	// HTTP/1.1 only: a request is then one use of one connection. HTTP/2 has
	// re-sends of its own (GOAWAY, refused streams) that cannot be turned off.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &Client{
		cfg:     cfg,
		token:   tokenFile{path: cfg.TokenFile},
		headers: headers,
		version: version,
		tls:     err,

		sendWithin: contract.SendWithin,
		http: &http.Client{
			Transport: &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DialContext:            (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext,
				Protocols:              &protocols,
				TLSClientConfig:        secure,
				MaxIdleConnsPerHost:    256, // one host: keep a connection for each slot
				IdleConnTimeout:        30 * time.Second,
				MaxResponseHeaderBytes: 64 << 10,
				OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
					return throughProxy(res)
				},
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Check reads the files that the settings name, so that a missing one is an error
// at start and not of the first account. It makes no call.
func (c *Client) Check() error {
	if c.tls != nil {
		return c.tls
	}
	if _, err := c.token.read(); err != nil {
		return config.Fault{Name: "UPSTREAM_TOKEN_FILE", Value: c.cfg.TokenFile, Problem: err.Error()}
	}
	return nil
}

// Reach connects to upstream, or to the proxy before it, and hangs up: nothing is
// asked, so it costs no call. It takes UPSTREAM_TIMEOUT at most.
func (c *Client) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.URL.For("any"), nil)
	if err != nil {
		return err
	}
	to := request.URL
	if proxy, err := http.ProxyFromEnvironment(request); err != nil {
		return err
	} else if proxy != nil {
		to = proxy
	}
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[to.Scheme]
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return err
	}
	return connection.Close()
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Fetch implements [Fetcher].
func (c *Client) Fetch(ctx context.Context, account string) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	begin := time.Now()
	response, err := c.fetch(ctx, account)
	response.Duration = time.Since(begin)
	var e *Error
	if errors.As(err, &e) {
		e.Duration = response.Duration
	}
	return response, err
}

func (c *Client) fetch(ctx context.Context, account string) (Response, error) {
	ctx, stop := sendWithin(ctx, c.sendWithin)
	defer stop()
	if c.tls != nil {
		return Response{}, &Error{Class: contract.ClassTransient, Reason: "TLS files cannot be read", Err: c.tls}
	}
	req, err := c.request(ctx, account)
	if err != nil { // the token file, or a URL that Validate would have refused
		return Response{}, &Error{Class: contract.ClassTransient, Reason: err.Error(), Err: err}
	}
	res, err := c.http.Do(req)
	if err != nil && errors.Is(context.Cause(ctx), errUnsent) {
		return Response{}, &Error{Class: contract.ClassTransient, Reason: errUnsent.Error(), Err: errUnsent}
	}
	if err != nil {
		return Response{}, transportError(err, "no answer")
	}
	defer res.Body.Close()
	body, err := readBody(res.Body, int64(c.cfg.MaxBytes))
	ok := res.StatusCode >= 200 && res.StatusCode < 300
	switch {
	case saysGone(res.StatusCode) && err != nil && !errors.Is(err, errTooLarge):
		// Whether the account is gone is for the body to say: one that was cut
		// off would pass for an empty one.
		return Response{}, bodyError(res.StatusCode, err)
	case !ok:
		// Of another error's body only the beginning is looked at, and it may be
		// broken: the status says it all.
		return c.failure(res, body)
	case err != nil:
		return Response{}, bodyError(res.StatusCode, err)
	}
	if problem := notJSON(res, body); problem != "" {
		e := &Error{
			Class: contract.ClassRefused, Status: res.StatusCode,
			Reason: fmt.Sprintf("%d with %s", res.StatusCode, problem),
		}
		if isPage(res, body) {
			e.Class = contract.ClassDenied
		}
		return Response{}, e
	}
	return Response{Status: res.StatusCode, Body: body, Version: c.version.of(res.Header, body)}, nil
}

// request returns a GET that net/http sends once and never again by itself.
//
// The transport re-sends a request whose reused connection turns out dead, if
// it takes the request for replayable or has written nothing yet. Both hold for
// a GET without body; neither holds for a request with a body that it cannot
// get a second time. So this one has a body that is empty, which the transport
// finds out before it writes the header: on the wire it is an ordinary GET.
func (c *Client) request(ctx context.Context, account string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.URL.For(account), onceBody{})
	if err != nil {
		return nil, errors.New("bad URL") // the error would hold the account
	}
	req.ContentLength = -1
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "quiesce")
	for name, values := range c.headers {
		req.Header[name] = values
	}
	token, err := c.token.read()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// onceBody is an empty body that http.NewRequest does not know how to repeat.
type onceBody struct{}

func (onceBody) Read([]byte) (int, error) { return 0, io.EOF }
func (onceBody) Close() error             { return nil }
