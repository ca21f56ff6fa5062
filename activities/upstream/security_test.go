package upstream

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/internal/config"
	"github.com/quiesce-io/quiesce/workflows/contract"
)

// authority is a certificate authority of the test's own.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{t: t, cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"upstream.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(a.t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	require.NoError(t, os.WriteFile(name, content, 0o600))
	return name
}

// secured serves with a certificate of ca and asks clients for one of its own. It
// answers with the client's name.
func secured(t *testing.T, ca *authority) string {
	cert, key := ca.issue("upstream")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // a handshake for every call
		_, _ = io.WriteString(w, `"`+r.TLS.PeerCertificates[0].Subject.CommonName+`"`)
	}))
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestOwnAuthorityAndClientCertificate(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	url := secured(t, ca)
	caFile := file(t, filepath.Join(dir, "ca.pem"), ca.pem)
	write := func(name string) (string, string) {
		cert, key := ca.issue(name)
		return file(t, filepath.Join(dir, "cert.pem"), cert), file(t, filepath.Join(dir, "key.pem"), key)
	}
	certFile, keyFile := write("first")
	both := func(c *Config) { c.TLS = TLS{CAFile: caFile, CertFile: certFile, KeyFile: keyFile} }

	c := client(t, url, both)
	require.NoError(t, c.Check())
	for _, name := range []string{"first", "second"} { // rotated without a restart
		write(name)
		response, err := c.Fetch(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, `"`+name+`"`, string(response.Body))
	}

	for name, c := range map[string]struct {
		edit   func(*Config)
		reason string
	}{
		"not trusted by the system":    {func(*Config) {}, "upstream's certificate is not trusted"},
		"not trusted by another's":     {func(c *Config) { c.TLS.CAFile = file(t, filepath.Join(dir, "other.pem"), newAuthority(t).pem) }, "upstream's certificate is not trusted"},
		"without a client certificate": {func(c *Config) { c.TLS.CAFile = caFile }, "TLS: upstream says certificate required"},
	} {
		_, err := client(t, url, c.edit).Fetch(t.Context(), "secret-account")
		e := failure(t, err)
		require.Equal(t, contract.ClassTransient, e.Class, name)
		require.Contains(t, e.Reason, c.reason, name)
	}
	_, err := client(t, strings.Replace(serve(t, http.NotFound), "http:", "https:", 1)).Fetch(t.Context(), "secret-account")
	require.Equal(t, "upstream does not speak TLS", failure(t, err).Reason)

	require.NoError(t, os.Remove(keyFile))
	_, err = c.Fetch(t.Context(), "secret-account")
	require.Equal(t, "client certificate cannot be read", failure(t, err).Reason)
	for _, edit := range []func(*Config){both, func(c *Config) { c.TLS.CAFile = keyFile }, func(c *Config) { c.TLS.CAFile = file(t, keyFile+"x", []byte("x")) }} {
		c := client(t, url, edit)
		require.ErrorContains(t, c.Check(), "UPSTREAM_TLS_")
		_, err := c.Fetch(t.Context(), "secret-account")
		require.Equal(t, "TLS files cannot be read", failure(t, err).Reason)
	}
}

func TestHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		_, _ = io.WriteString(w, "{}")
	})
	_, err := client(t, url, func(c *Config) {
		c.Headers = "X-Api-Key: hunter2\r\n\nAuthorization:Basic dTpw \nAccept: application/vnd.crm+json\nx-many: 1\nX-Many: 2"
	}).Fetch(t.Context(), "a")
	require.NoError(t, err)
	h := <-got
	require.Equal(t, "hunter2", h.Get("X-Api-Key"))
	require.Equal(t, "Basic dTpw", h.Get("Authorization"))
	require.Equal(t, "application/vnd.crm+json", h.Get("Accept"))
	require.Equal(t, []string{"1", "2"}, h["X-Many"])

	for text, problem := range map[string]string{
		"hunter2":                    "line 1 is not Name: value",
		"X-A: b\nhunter2 x: y":       "line 2 is not Name: value",
		"X-Key:":                     "X-Key",
		"X-Key: hunter2\x01":         "X-Key",
		"Host: hunter2":              "Host",
		"Content-Length: 7":          "Content-Length",
		"Authorization: hunter2":     "UPSTREAM_TOKEN_FILE",
		"X-Key: hunter2\rX-Other: 1": "X-Key",
	} {
		cfg := Default()
		cfg.URL, cfg.TokenFile, cfg.Headers = "https://h/{account}", "f", config.Secret(text)
		err := cfg.Validate()
		require.ErrorContains(t, err, "UPSTREAM_HEADERS", text)
		require.ErrorContains(t, err, problem, text)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestSecuritySettingsThatCannotBe(t *testing.T) {
	cfg := Default()
	cfg.URL, cfg.TLS.CertFile, cfg.Version = "http://h/{account}", "cert.pem", "body"
	err := cfg.Validate()
	for _, want := range []string{"UPSTREAM_TLS_CERT_FILE=cert.pem: goes with UPSTREAM_TLS_KEY_FILE", "UPSTREAM_URL=http://h/{account}: must begin with https://", "UPSTREAM_VERSION=body"} {
		require.ErrorContains(t, err, want)
	}
}

func TestRedirectIsNotFollowedAnywhere(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/elsewhere", status) })
		_, err := client(t, url, func(c *Config) { c.Headers = "X-Api-Key: hunter2" }).Fetch(t.Context(), "a")
		require.Equal(t, status, failure(t, err).Status)
	}
}

func TestAnswersSayHowNewTheyAre(t *testing.T) {
	for _, c := range []struct{ source, header, body, want string }{
		{"", "7", `{"version":8}`, ""},
		{"header:X-Version", "7", `{"version":8}`, "7"},
		{"header:x-version", "2026-11-30T12:00:00Z", `{}`, "2026-11-30T12:00:00Z"},
		{"header:X-Version", "", `{}`, ""},
		{"json:version", "", `{"version":8}`, "8"},
		{"json:meta.version", "", `{"meta":{"version":"9007199254740993"}}`, "9007199254740993"},
		{"json:updated", "", `{"updated":"2026-11-30T13:00:00+01:00"}`, "2026-11-30T12:00:00Z"},
		{"json:meta.version", "", `{"meta":7}`, ""},
		{"json:version", "", `{"version":{}}`, ""},
		{"json:version", "", `{"version":1.5}`, ""},
		{"json:version", "", `[8]`, ""},
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Version", c.header)
			_, _ = io.WriteString(w, c.body)
		})
		response, err := client(t, url, func(cfg *Config) { cfg.Version = c.source }).Fetch(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, c.want, response.Version.String(), "%+v", c)
	}
}

// TestThroughProxy runs itself in a process of its own, because net/http reads
// the proxy variables once.
func TestThroughProxy(t *testing.T) {
	if kind := os.Getenv("PROXIED"); kind != "" {
		proxied(t, kind)
		return
	}
	ca, dir := newAuthority(t), t.TempDir()
	cert, key := ca.issue("upstream")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"origin"`) }))
	origin.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	origin.StartTLS()
	defer origin.Close()

	var mu sync.Mutex
	var seen []string
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		mu.Unlock()
		switch {
		case r.Method != http.MethodConnect:
			_, _ = io.WriteString(w, `"proxy"`)
		case r.Host == "refused.test:443":
			w.WriteHeader(http.StatusProxyAuthRequired)
		default: // whatever it is called, it is our origin
			tunnel(w, origin.Listener.Addr().String())
		}
	})
	for kind, want := range map[string][]string{
		"http":    {"GET http://upstream.test/accounts/a%2Fb Basic dTpw"},
		"https":   {"CONNECT upstream.test:443 Basic dTpw"},
		"refused": {"CONNECT refused.test:443 Basic dTpw"},
		"direct":  nil,
	} {
		seen = nil
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestThroughProxy$", "-test.v")
		proxyURL := strings.Replace(proxy, "http://", "http://u:p@", 1)
		cmd.Env = append(os.Environ(), "PROXIED="+kind, "HTTP_PROXY="+proxyURL, "HTTPS_PROXY="+proxyURL, "NO_PROXY=direct.test",
			"CA="+file(t, filepath.Join(dir, "ca.pem"), ca.pem))
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Equal(t, want, seen, kind)
	}
}

// proxied is one call in the inner process.
func proxied(t *testing.T, kind string) {
	url, edit := "http://upstream.test", func(*Config) {}
	switch kind {
	case "https":
		url, edit = "https://upstream.test", func(c *Config) { c.TLS.CAFile = os.Getenv("CA") }
	case "refused":
		url = "https://refused.test"
	case "direct":
		url = "http://direct.test"
	}
	response, err := client(t, url, edit).Fetch(t.Context(), "a/b")
	switch kind {
	case "http":
		require.NoError(t, err)
		require.Equal(t, `"proxy"`, string(response.Body))
	case "https":
		require.NoError(t, err)
		require.Equal(t, `"origin"`, string(response.Body))
	case "refused":
		require.Equal(t, "proxy: 407 Proxy Authentication Required", failure(t, err).Reason)
	case "direct":
		require.Error(t, err, "there is no such host, and nobody was asked to find it")
	}
}

func tunnel(w http.ResponseWriter, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer client.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, bufio.NewReader(buffered))
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	<-done
}
