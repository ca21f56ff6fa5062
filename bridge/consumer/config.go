package consumer

import (
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/bridge/intake"
	"github.com/quiesce-io/quiesce/internal/config"
)

// Config says what to consume and how to reach it.
type Config struct {
	Brokers []string `env:"KAFKA_BROKERS" help:"Seed brokers, host:port, separated by commas; required."`
	Topics  []string `env:"KAFKA_TOPICS" help:"Topics to consume, separated by commas; required."`
	Group   string   `env:"KAFKA_GROUP" help:"Consumer group; empty: the pipeline's name."`

	Start          string        `env:"KAFKA_START" help:"Where a group without commits starts: earliest or latest. Partitions that appear later start at their beginning."`
	GroupProtocol  string        `env:"KAFKA_GROUP_PROTOCOL" help:"classic (cooperative-sticky), eager (range, for joining a group of clients that know nothing else; cooperative-sticky once a member is classic) or consumer (KIP-848)."`
	Recreated      string        `env:"KAFKA_TOPIC_RECREATED" help:"What follows when a topic is deleted and created again: the process ends, and the next one starts at the new topic's beginning (restart) or does not read it before the group's offset is set by hand (stop)."`
	InstanceID     string        `env:"KAFKA_INSTANCE_ID" help:"Static membership: an ID that no other running member has; empty: dynamic."`
	SessionTimeout time.Duration `env:"KAFKA_SESSION_TIMEOUT" help:"How long the group waits for a silent member before it gives its partitions away."`

	TLS         bool   `env:"KAFKA_TLS" help:"Whether to speak TLS."`
	TLSCAFile   string `env:"KAFKA_TLS_CA_FILE" help:"PEM file of the authorities to trust; empty: the system's."`
	TLSCertFile string `env:"KAFKA_TLS_CERT_FILE" help:"PEM file of the client certificate; empty: none."`
	TLSKeyFile  string `env:"KAFKA_TLS_KEY_FILE" help:"PEM file of the client certificate's key."`

	SASLMechanism string        `env:"KAFKA_SASL_MECHANISM" help:"PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; empty: none."`
	SASLUsername  string        `env:"KAFKA_SASL_USERNAME" help:"User name for SASL."`
	SASLPassword  config.Secret `env:"KAFKA_SASL_PASSWORD" help:"Password for SASL."`

	OAuthTokenFile    string `env:"KAFKA_OAUTH_TOKEN_FILE" help:"File that holds the token for OAUTHBEARER; read for each connection, so it may be replaced while the process runs."`
	OAuthTokenCommand string `env:"KAFKA_OAUTH_TOKEN_COMMAND" help:"Command that prints the token for OAUTHBEARER, instead of a file: program and arguments, separated by spaces, without a shell; run for each connection, for 10s at most. It is printed with the settings: let it read secrets from files."`

	CommitInterval time.Duration `env:"COMMIT_INTERVAL" help:"How often offsets are committed."`
	StartTimeout   time.Duration `env:"START_TIMEOUT" help:"How long to wait at start for brokers and topics before giving up."`

	Intake intake.Config
}

// Choices of KAFKA_START, KAFKA_GROUP_PROTOCOL and KAFKA_TOPIC_RECREATED.
const (
	StartEarliest    = "earliest"
	StartLatest      = "latest"
	ProtocolClassic  = "classic"
	ProtocolEager    = "eager"
	ProtocolConsumer = "consumer"
	RecreatedRestart = "restart"
	RecreatedStop    = "stop"
)

// CommitTimeout bounds one commit, and so what a turn of the poll loop may take in
// which partitions are revoked. No lease of a loop may be shorter.
const CommitTimeout = commitTimeout

// DefaultConfig returns the defaults; brokers, topics and group have none.
func DefaultConfig() Config {
	return Config{
		Start:          StartEarliest,
		GroupProtocol:  ProtocolClassic,
		Recreated:      RecreatedRestart,
		SessionTimeout: 45 * time.Second,
		CommitInterval: time.Second,
		StartTimeout:   30 * time.Second,
		Intake:         intake.DefaultConfig(),
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	require := func(ok bool, name, value, problem string) {
		if !ok {
			faults = append(faults, config.Fault{Name: name, Value: value, Problem: problem})
		}
	}
	require(len(c.Brokers) > 0, "KAFKA_BROKERS", "", "is required: host:port, separated by commas")
	for _, b := range c.Brokers {
		_, _, err := net.SplitHostPort(b)
		require(err == nil, "KAFKA_BROKERS", b, "must be host:port, separated by commas")
	}
	require(len(c.Topics) > 0 && !slices.Contains(c.Topics, ""), "KAFKA_TOPICS", "", "is required: topic names, separated by commas")
	require(c.Intake.DeadLetterTopic == "" || !slices.Contains(c.Topics, c.Intake.DeadLetterTopic),
		"DEAD_LETTER_TOPIC", c.Intake.DeadLetterTopic, "must not be one of KAFKA_TOPICS: dead letters would come back for ever")
	require(c.Group != "", "KAFKA_GROUP", "", "is required")
	require(c.Start == StartEarliest || c.Start == StartLatest, "KAFKA_START", c.Start, "must be earliest or latest")
	require(slices.Contains([]string{ProtocolClassic, ProtocolEager, ProtocolConsumer}, c.GroupProtocol), "KAFKA_GROUP_PROTOCOL", c.GroupProtocol, "must be classic, eager or consumer")
	require(c.Recreated == RecreatedRestart || c.Recreated == RecreatedStop, "KAFKA_TOPIC_RECREATED", c.Recreated, "must be restart or stop")
	require(c.SessionTimeout >= time.Second, "KAFKA_SESSION_TIMEOUT", c.SessionTimeout.String(), "must be at least 1s")
	require(c.CommitInterval >= 10*time.Millisecond && c.CommitInterval <= time.Minute, "COMMIT_INTERVAL", c.CommitInterval.String(), "must be between 10ms and 1m")
	require(c.StartTimeout >= time.Second, "START_TIMEOUT", c.StartTimeout.String(), "must be at least 1s")
	require((c.TLSCertFile == "") == (c.TLSKeyFile == ""), "KAFKA_TLS_KEY_FILE", c.TLSKeyFile, "goes together with KAFKA_TLS_CERT_FILE: set both or neither")
	require(c.TLS || c.TLSCAFile == "" && c.TLSCertFile == "", "KAFKA_TLS", "false", "must be true when certificates are given")
	switch c.SASLMechanism {
	case "":
		require(c.SASLUsername == "" && c.SASLPassword == "", "KAFKA_SASL_MECHANISM", "", "is required with a user name or password: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		require(c.OAuthTokenFile == "" && c.OAuthTokenCommand == "", "KAFKA_SASL_MECHANISM", "", "must be OAUTHBEARER with KAFKA_OAUTH_TOKEN_FILE or KAFKA_OAUTH_TOKEN_COMMAND")
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		require(c.SASLUsername != "", "KAFKA_SASL_USERNAME", "", "is required with KAFKA_SASL_MECHANISM")
		require(c.SASLPassword != "", "KAFKA_SASL_PASSWORD", "", "is required with KAFKA_SASL_MECHANISM, here or in the file that KAFKA_SASL_PASSWORD_FILE names")
	case "OAUTHBEARER":
		require((c.OAuthTokenFile == "") != (strings.TrimSpace(c.OAuthTokenCommand) == ""), "KAFKA_OAUTH_TOKEN_FILE", c.OAuthTokenFile, "is required with KAFKA_SASL_MECHANISM=OAUTHBEARER, or KAFKA_OAUTH_TOKEN_COMMAND, and not both")
	default:
		require(false, "KAFKA_SASL_MECHANISM", c.SASLMechanism, "must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
	}
	return errors.Join(append(faults, c.Intake.Validate())...)
}
