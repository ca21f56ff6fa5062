package kafkatest

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/quiesce-io/quiesce/bridge/consumer"
	"github.com/quiesce-io/quiesce/deploy/local/kafka"
	"github.com/quiesce-io/quiesce/internal/config"
)

// token returns an unsigned token, which the broker takes as it is.
func token(subject string, expires time.Time) string {
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return encode(`{"alg":"none"}`) + "." +
		encode(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, time.Now().Add(-time.Minute).Unix(), expires.Unix())) + "."
}

// Every way to connect, with the right credentials and with wrong ones. The
// secrets come from files where the process reads them from there.
func TestConnections(t *testing.T) {
	if !on.apache {
		t.Skip("kfake's TLS and SASL are tested beside the consumer")
	}
	f := newFixture(t, 1)
	for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
		altered, err := f.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: username, Mechanism: mechanism, Iterations: 4096, Password: password}})
		require.NoError(t, err)
		require.NoError(t, altered.Error())
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	goodToken, badToken := file("token", token("bridge", time.Now().Add(time.Hour))+"\n"), file("expired", token("bridge", time.Now().Add(-time.Minute)))
	s := on.security
	tls := func(cert, key, ca string) func(*consumer.Config) {
		return func(c *consumer.Config) {
			c.Brokers = []string{on.broker.Addr(kafka.TLS)}
			c.TLS, c.TLSCAFile, c.TLSCertFile, c.TLSKeyFile = true, ca, cert, key
		}
	}
	sasl := func(mechanism, user, secret, tokenFile string) func(*consumer.Config) {
		return func(c *consumer.Config) {
			c.Brokers = []string{on.broker.Addr(kafka.SASL)}
			c.TLS, c.TLSCAFile = true, s.ca
			c.SASLMechanism, c.SASLUsername, c.SASLPassword, c.OAuthTokenFile = mechanism, user, config.Secret(secret), tokenFile
		}
	}
	for _, test := range []struct {
		name string
		edit func(*consumer.Config)
		want []string // in the error; nil: it connects
	}{
		{"TLS with a client certificate", tls(s.client, s.clientKey, s.ca), nil},
		{"TLS without a client certificate", tls("", "", s.ca), []string{"certificate"}},
		{"TLS with a stranger's certificate", tls(s.stranger, s.strangerKey, s.ca), []string{"tls"}},
		{"TLS of an unknown authority", tls(s.client, s.clientKey, ""), []string{"certificate signed by unknown authority"}},
		{"plain text to a TLS listener", func(c *consumer.Config) { c.Brokers = []string{on.broker.Addr(kafka.TLS)} }, []string{"KAFKA_BROKERS"}},
		{"TLS to a plain listener", func(c *consumer.Config) { c.TLS = true }, []string{"KAFKA_BROKERS"}},
		{"SASL PLAIN", sasl("PLAIN", username, password, ""), nil},
		{"SASL SCRAM-SHA-256", sasl("SCRAM-SHA-256", username, password, ""), nil},
		{"SASL SCRAM-SHA-512", sasl("SCRAM-SHA-512", username, password, ""), nil},
		{"SASL OAUTHBEARER", sasl("OAUTHBEARER", "", "", goodToken), nil},
		{"SASL OAUTHBEARER, token of a command", func(c *consumer.Config) {
			sasl("OAUTHBEARER", "", "", "")(c)
			c.OAuthTokenCommand = "cat " + goodToken
		}, nil},
		{"wrong password, PLAIN", sasl("PLAIN", username, "not-it", ""), []string{"KAFKA_SASL_MECHANISM=PLAIN", "Invalid username or password"}},
		{"wrong password, SCRAM-SHA-256", sasl("SCRAM-SHA-256", username, "not-it", ""), []string{"KAFKA_SASL_MECHANISM=SCRAM-SHA-256"}},
		{"unknown user, SCRAM-SHA-512", sasl("SCRAM-SHA-512", "nobody", password, ""), []string{"KAFKA_SASL_MECHANISM=SCRAM-SHA-512"}},
		{"expired token", sasl("OAUTHBEARER", "", "", badToken), []string{"KAFKA_SASL_MECHANISM=OAUTHBEARER"}},
		{"no SASL to a listener that wants it", func(c *consumer.Config) {
			c.Brokers, c.TLS, c.TLSCAFile = []string{on.broker.Addr(kafka.SASL)}, true, s.ca
		}, []string{"KAFKA_BROKERS"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 1)
			cfg := f.config()
			cfg.StartTimeout = 2 * time.Second
			test.edit(&cfg)
			began := time.Now()
			m := f.start(cfg)
			if test.want == nil {
				m.untilAssigned(1)
				m.stop()
				return
			}
			<-m.ended
			require.Less(t, time.Since(began), cfg.StartTimeout+5*time.Second)
			t.Logf("after %s: %v", time.Since(began).Round(time.Millisecond), m.err)
			for _, want := range test.want {
				require.ErrorContains(t, m.err, want)
			}
			require.NotContains(t, m.err.Error(), "not-it")
			require.NotContains(t, m.err.Error(), strings.TrimSpace(token("", time.Time{})))
		})
	}
}

// A token that is replaced in its file, or that its command prints next, is used
// for the next connection.
func TestTokenIsReadAgain(t *testing.T) {
	if !on.apache {
		t.Skip("kfake does not know OAUTHBEARER")
	}
	for source, set := range map[string]func(c *consumer.Config, path string){
		"file":    func(c *consumer.Config, path string) { c.OAuthTokenFile = path },
		"command": func(c *consumer.Config, path string) { c.OAuthTokenCommand = "cat " + path },
	} {
		t.Run(source, func(t *testing.T) {
			f := newFixture(t, 1)
			path := filepath.Join(t.TempDir(), "token")
			replace := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
			replace(token("bridge", time.Now().Add(-time.Minute))) // expired
			cfg := f.config()
			cfg.Brokers, cfg.TLS, cfg.TLSCAFile = []string{on.broker.Addr(kafka.SASL)}, true, on.security.ca
			cfg.SASLMechanism, cfg.StartTimeout = "OAUTHBEARER", 20*time.Second
			set(&cfg, path)
			a := f.start(cfg)
			replace(token("bridge", time.Now().Add(time.Hour)))
			a.untilAssigned(1)
			f.fill(1, 3)
			f.untilFlow(a)
			a.stop()
		})
	}
}

// The user is removed while the member runs. It must not go on trying for ever
// with a secret that only a new process reads anew.
func TestCredentialsAreRevoked(t *testing.T) {
	if !on.apache {
		t.Skip("needs users that can be removed")
	}
	f := newFixture(t, 1)
	altered, err := f.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "leaver", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}})
	require.NoError(t, err)
	require.NoError(t, altered.Error())
	cfg := f.config()
	cfg.Brokers, cfg.TLS, cfg.TLSCAFile = []string{on.broker.Addr(kafka.SASL)}, true, on.security.ca
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPassword = "SCRAM-SHA-256", "leaver", password
	a := f.start(cfg)
	a.untilAssigned(1)
	altered, err = f.admin.AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: "leaver", Mechanism: kadm.ScramSha256}}, nil)
	require.NoError(t, err)
	require.NoError(t, altered.Error())
	require.NoError(t, on.restart(t.Context(), true)) // connections that are open stay so
	began := time.Now()
	select {
	case <-a.ended:
	case <-time.After(time.Minute):
		t.Fatal("it goes on trying")
	}
	require.ErrorContains(t, a.err, "KAFKA_SASL_MECHANISM=SCRAM-SHA-256")
	t.Logf("ended after %s: %v", time.Since(began).Round(time.Millisecond), a.err)
}
