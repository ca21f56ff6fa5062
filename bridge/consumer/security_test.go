package consumer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/quiesce-io/quiesce/bridge/buffer"
	"github.com/quiesce-io/quiesce/bridge/ledger"
	"github.com/quiesce-io/quiesce/internal/telemetry"
)

// authority makes a certificate for 127.0.0.1 that is its own authority.
func authority(t *testing.T) (pair tls.Certificate, caFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile
}

// The only test on real sockets and real time: TLS and SASL in front of a
// broker that admits nobody else.
func TestTLSAndSASL(t *testing.T) {
	pair, caFile := authority(t)
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1), kfake.SeedTopics(1, "one"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "bridge", "hush"), kfake.Superuser("PLAIN", "bridge", "hush"), kfake.Superuser("SCRAM-SHA-512", "bridge", "hush"),
	)
	require.NoError(t, err)
	defer cluster.Close()
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	require.NoError(t, os.WriteFile(notPEM, []byte("hush\n"), 0o600))

	run := func(edit func(*Config)) (int, error) {
		cfg := DefaultConfig()
		cfg.Brokers, cfg.Topics, cfg.Group = cluster.ListenAddrs(), []string{"one"}, "group"
		cfg.Intake.BadRecord = "skip"
		cfg.TLS, cfg.TLSCAFile = true, caFile
		cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPassword = "SCRAM-SHA-256", "bridge", "hush"
		cfg.StartTimeout = time.Second
		edit(&cfg)
		l := ledger.New()
		b := buffer.New(buffer.DefaultConfig(), l)
		turns := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := New(cfg, Deps{Logger: slog.New(slog.DiscardHandler), Metrics: telemetry.Discard, Sink: &sink{}, Buffer: b, Ledger: l,
			PollTurn: func() { turns++; cancel() }})
		require.NoError(t, err)
		err = c.Run(ctx)
		return turns, err
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		turns, err := run(func(c *Config) { c.SASLMechanism = mechanism })
		require.NoError(t, err, mechanism)
		require.Positive(t, turns)
	}
	turns, err := run(func(c *Config) { c.SASLPassword = "wrong" })
	require.Regexp(t, "^KAFKA_(SASL_MECHANISM|BROKERS)", err.Error())
	require.NotContains(t, err.Error(), "wrong")
	require.Zero(t, turns)
	_, err = run(func(c *Config) { c.TLSCAFile = "" })
	require.ErrorContains(t, err, "KAFKA_BROKERS")
	require.ErrorContains(t, err, "certificate")

	cfg := DefaultConfig()
	cfg.TLSCAFile = notPEM
	_, err = cfg.tlsConfig()
	require.ErrorContains(t, err, "KAFKA_TLS_CA_FILE")
}
