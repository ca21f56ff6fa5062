package consumer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Connection returns the options that every client needs to reach the brokers,
// those included that read without joining the group: audits and replays.
func (c Config) Connection() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(c.Brokers...), kgo.ClientID("quiesce-bridge")}
	if c.TLS {
		t, err := c.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	if c.SASLMechanism != "" {
		m, err := c.mechanism()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

func (c Config) tlsConfig() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSCAFile != "" {
		pem, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, config.Fault{Name: "KAFKA_TLS_CA_FILE", Value: c.TLSCAFile, Problem: err.Error()}
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, config.Fault{Name: "KAFKA_TLS_CA_FILE", Value: c.TLSCAFile, Problem: "holds no PEM certificate"}
		}
	}
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return nil, config.Fault{Name: "KAFKA_TLS_CERT_FILE", Value: c.TLSCertFile, Problem: err.Error()}
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func (c Config) mechanism() (sasl.Mechanism, error) {
	password := c.SASLPassword.Reveal()
	switch c.SASLMechanism {
	case "PLAIN":
		return plain.Auth{User: c.SASLUsername, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.SASLUsername, Pass: password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.SASLUsername, Pass: password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		// A command may have to wait for a service, which is no fault of the settings.
		if c.OAuthTokenFile != "" {
			if _, err := c.token(context.Background()); err != nil {
				return nil, err
			}
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := c.token(ctx)
			return oauth.Auth{Token: token}, err
		}), nil
	}
	return nil, fmt.Errorf("SASL mechanism %q", c.SASLMechanism)
}

// maxBatchBytes is what one batch may decompress to; beyond it, its partition
// stops. Producers batch a few MiB at most. On the way the client takes up to four
// times as much.
const maxBatchBytes = 64 << 20

// member returns the options of the group member.
func (c *Consumer) member() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(c.cfg.Group),
		kgo.ConsumeTopics(c.cfg.Topics...),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Control records come to us too: they are the last offsets of a
		// transaction, and lag would never reach 0 without them.
		kgo.KeepControlRecords(),
		// Never reset by itself, see doc.go. Assignments start where
		// adjustOffsets says.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.AdjustFetchOffsetsFn(c.adjustOffsets),
		kgo.OnPartitionsAssigned(c.onAssigned),
		kgo.OnPartitionsRevoked(c.onRevoked),
		kgo.OnPartitionsLost(c.onLost),
		kgo.SessionTimeout(c.cfg.SessionTimeout),
		kgo.RebalanceTimeout(rebalanceTimeout),
		// Partitions that are added are found by whoever leads the group, by
		// asking; they wait that long.
		kgo.MetadataMaxAge(15 * time.Second),
		kgo.HeartbeatInterval(min(3*time.Second, c.cfg.SessionTimeout/3)),
		// What is prefetched is memory that no bound of ours counts: keep it
		// small, and short, because a resumed partition waits for the fetch in
		// flight.
		// One fetch holds 8 MiB (or one batch that is larger), and what a batch
		// decompresses to is bounded as well: a small one may hold gigabytes.
		kgo.FetchMaxBytes(8 << 20),
		kgo.MaxDecompressBatchBytes(maxBatchBytes),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.MaxConcurrentFetches(4),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	switch c.cfg.GroupProtocol {
	case ProtocolConsumer:
		opts = append(opts, kgo.ServerSideBalancer())
	case ProtocolEager:
		// The first that all members know. Range comes first, so that the group
		// turns cooperative when one member is classic, and not whenever the last
		// of the foreign clients happens to be away.
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer(), kgo.CooperativeStickyBalancer()))
	default:
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if c.cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.cfg.InstanceID))
	}
	return opts
}
