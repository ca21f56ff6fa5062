package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/quiesce-io/quiesce/deploy/local/kafka"
)

const (
	username = "bridge"
	password = "hush"
)

// security is an authority of our own and what it has signed; files are PEM.
type security struct {
	ca, server, client, clientKey string
	stranger, strangerKey         string // signed by another authority
}

func (s security) broker() *kafka.Security {
	return &kafka.Security{KeystoreFile: s.server, CAFile: s.ca, Username: username, Password: password}
}

func newSecurity(dir string) (security, error) {
	ca, err := newAuthority("ours")
	if err != nil {
		return security{}, err
	}
	other, err := newAuthority("another")
	if err != nil {
		return security{}, err
	}
	s := security{}
	write := func(name string, blocks ...*pem.Block) string {
		path := filepath.Join(dir, name)
		var text []byte
		for _, b := range blocks {
			text = append(text, pem.EncodeToMemory(b)...)
		}
		if writeErr := os.WriteFile(path, text, 0o600); writeErr != nil && err == nil {
			err = writeErr
		}
		return path
	}
	s.ca = write("ca.pem", ca.certificate)
	issue := func(a authority, name string) (key, cert *pem.Block) {
		k, c, issueErr := a.issue(name)
		if issueErr != nil && err == nil {
			err = issueErr
		}
		return k, c
	}
	key, cert := issue(ca, "broker")
	s.server = write("broker.pem", key, cert)
	key, cert = issue(ca, "bridge")
	s.client, s.clientKey = write("client.pem", cert), write("client.key", key)
	key, cert = issue(other, "stranger")
	s.stranger, s.strangerKey = write("stranger.pem", cert), write("stranger.key", key)
	return s, err
}

type authority struct {
	certificate *pem.Block
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	parsed, err := x509.ParseCertificate(der)
	return authority{certificate: &pem.Block{Type: "CERTIFICATE", Bytes: der}, parsed: parsed, key: key}, err
}

func (a authority) issue(name string) (key, certificate *pem.Block, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, own.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(own)
	return &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}, &pem.Block{Type: "CERTIFICATE", Bytes: der}, err
}
