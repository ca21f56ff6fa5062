package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/quiesce-io/quiesce/internal/config"
)

// TLS holds the files with which a [Client] proves itself and checks upstream.
type TLS struct {
	// CAFile replaces the system's authorities: whoever names their own means
	// that nobody else may vouch for upstream.
	CAFile string `env:"UPSTREAM_TLS_CA_FILE" help:"PEM file with the authorities that may vouch for upstream, instead of the system's; read at start."`
	// CertFile and KeyFile are read for every connection, so that they can be
	// rotated without a restart.
	CertFile string `env:"UPSTREAM_TLS_CERT_FILE" help:"PEM file with the certificate shown to upstream, read for every connection; needs UPSTREAM_TLS_KEY_FILE."`
	KeyFile  string `env:"UPSTREAM_TLS_KEY_FILE" help:"PEM file with the key of UPSTREAM_TLS_CERT_FILE."`
}

// config returns what the transport needs; nil for the defaults.
func (t TLS) config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		raw, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, config.Fault{Name: "UPSTREAM_TLS_CA_FILE", Value: t.CAFile, Problem: err.Error()}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(raw) {
			return nil, config.Fault{Name: "UPSTREAM_TLS_CA_FILE", Value: t.CAFile, Problem: "holds no certificate in PEM"}
		}
	}
	if t.CertFile != "" {
		if _, err := t.pair(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.pair() }
	}
	return c, nil
}

func (t TLS) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, config.Fault{Name: "UPSTREAM_TLS_CERT_FILE", Value: t.CertFile, Problem: err.Error()}
	}
	return &pair, nil
}

// proxyError is a proxy that does not let us through.
type proxyError struct{ status string }

func (e proxyError) Error() string { return "proxy: " + e.status }

// tlsReason says in one line what is wrong with a handshake, or "".
func tlsReason(err error) string {
	var fault config.Fault
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // crypto/tls wraps what the other side objects to
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &fault):
		return "client certificate cannot be read"
	case errors.As(err, &verification):
		return "upstream's certificate is not trusted"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "TLS: upstream says " + strings.TrimPrefix(alert.Err.Error(), "tls: ")
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "upstream does not speak TLS"
	}
	return ""
}

// throughProxy makes an answer to CONNECT an error that can be told apart.
func throughProxy(res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return proxyError{status: fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))}
}
