package consumer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/quiesce-io/quiesce/internal/config"
)

// where names the setting that says where the brokers are, with its value.
func (c *Consumer) where() string { return "KAFKA_BROKERS=" + strings.Join(c.cfg.Brokers, ",") }

// who is who we are to the brokers.
func (c *Consumer) who() string {
	switch {
	case c.cfg.SASLUsername != "":
		return "KAFKA_SASL_USERNAME=" + c.cfg.SASLUsername
	case c.cfg.TLSCertFile != "":
		return "the owner of KAFKA_TLS_CERT_FILE=" + c.cfg.TLSCertFile
	}
	return "this client"
}

// explain says why the brokers could not be used at start, and what to change.
func (c *Consumer) explain(err error) error {
	var fault config.Fault
	switch {
	case errors.As(err, &fault): // there was no token
		return fault
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return c.refused(err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("KAFKA_TOPICS=%s, DEAD_LETTER_TOPIC=%s at %s: %s may not see them all: grant READ on the former and WRITE on the latter: %w",
			strings.Join(c.cfg.Topics, ","), c.cfg.Intake.DeadLetterTopic, c.where(), c.who(), err)
	case errors.As(err, new(*kerr.Error)):
		return fmt.Errorf("%s: %w", c.where(), err)
	}
	return fmt.Errorf("%s: no answer: start them, or name others: %w", c.where(), err)
}

func (c *Consumer) refused(err error) error {
	return fmt.Errorf("KAFKA_SASL_MECHANISM=%s: %s refuses the credentials: %w", c.cfg.SASLMechanism, c.where(), err)
}
