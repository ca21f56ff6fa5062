package consumer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestValidateNamesEveryFault(t *testing.T) {
	c := DefaultConfig()
	c.Brokers, c.Start, c.GroupProtocol = []string{"nohost"}, "now", "range"
	c.TLSCertFile, c.SASLMechanism, c.Recreated = "x.pem", "GSSAPI", "maybe"
	err := c.Validate()
	for _, name := range []string{"KAFKA_BROKERS=nohost", "KAFKA_TOPICS", "KAFKA_GROUP:", "KAFKA_START=now", "KAFKA_GROUP_PROTOCOL=range: must be classic, eager or consumer", "KAFKA_TLS_KEY_FILE", "KAFKA_TLS=false", "KAFKA_SASL_MECHANISM=GSSAPI", "KAFKA_TOPIC_RECREATED=maybe", "DEAD_LETTER_TOPIC"} {
		require.ErrorContains(t, err, name)
	}
	c = DefaultConfig()
	c.SASLMechanism, c.SASLUsername, c.SASLPassword = "PLAIN", "u", ""
	require.ErrorContains(t, c.Validate(), "KAFKA_SASL_PASSWORD: is required")
}

func TestValidateWantsOneSourceOfTokens(t *testing.T) {
	for _, test := range []struct{ mechanism, file, command, fault string }{
		{"OAUTHBEARER", "", "", "KAFKA_OAUTH_TOKEN_FILE: is required"},
		{"OAUTHBEARER", "", " ", "KAFKA_OAUTH_TOKEN_FILE: is required"},
		{"OAUTHBEARER", "token", "echo token", "and not both"},
		{"", "token", "", "must be OAUTHBEARER with"},
		{"", "", "echo token", "must be OAUTHBEARER with"},
		{"OAUTHBEARER", "token", "", ""},
		{"OAUTHBEARER", "", "echo token", ""},
	} {
		c := DefaultConfig()
		c.Brokers, c.Topics, c.Group, c.Intake.DeadLetterTopic = []string{"a:1"}, []string{"one"}, "group", "dead"
		c.SASLMechanism, c.OAuthTokenFile, c.OAuthTokenCommand = test.mechanism, test.file, test.command
		if err := c.Validate(); test.fault == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, test.fault)
		}
	}
}

func TestTokenOfACommand(t *testing.T) {
	script := func(text string) string {
		path := filepath.Join(t.TempDir(), "token.sh")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
		return path
	}
	token, err := Config{OAuthTokenCommand: script(`echo "$1.$2"`) + "  a b"}.token(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a.b", token)

	for text, want := range map[string]string{
		"echo half-a-token; echo the vault is sealed >&2; exit 3": "exit status 3: the vault is sealed",
		"true": "holds no token",
	} {
		path := script(text)
		_, err = Config{OAuthTokenCommand: path}.token(t.Context())
		require.EqualError(t, err, "KAFKA_OAUTH_TOKEN_COMMAND="+path+": "+want)
	}
	_, err = Config{OAuthTokenCommand: " ", OAuthTokenFile: "/nowhere/file"}.token(t.Context())
	require.ErrorContains(t, err, "KAFKA_OAUTH_TOKEN_FILE", "a blank command is none")
	_, err = Config{OAuthTokenCommand: "/nowhere/token s3cret"}.token(t.Context())
	require.NotContains(t, err.Error(), "s3cret")
	_, err = Config{OAuthTokenCommand: "/nowhere/token"}.token(t.Context())
	require.ErrorContains(t, err, "KAFKA_OAUTH_TOKEN_COMMAND=/nowhere/token: ")
}

// A child that it leaves behind holds its output open; nobody waits for that.
func TestTokenOfACommandThatLeavesAChild(t *testing.T) {
	began := time.Now()
	path := filepath.Join(t.TempDir(), "token.sh")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nsleep 20 &\necho token\n"), 0o700))
	_, err := Config{OAuthTokenCommand: path}.token(t.Context())
	require.ErrorContains(t, err, "KAFKA_OAUTH_TOKEN_COMMAND")
	require.Less(t, time.Since(began), 10*time.Second)
}

// What only an operator can mend names the setting to change.
func TestFatalGroupErrorsNameTheSetting(t *testing.T) {
	c := DefaultConfig()
	c.Group, c.InstanceID = "group", "bridge-0"
	consumer := &Consumer{cfg: c}
	for err, want := range map[error]string{
		kerr.FencedInstanceID:          "KAFKA_INSTANCE_ID=bridge-0: another process",
		kerr.UnreleasedInstanceID:      "KAFKA_INSTANCE_ID=bridge-0: another member",
		kerr.InconsistentGroupProtocol: "KAFKA_GROUP_PROTOCOL=classic: members of group group use another one; if that is range, set eager",
		kerr.GroupAuthorizationFailed:  "KAFKA_GROUP=group",
		kerr.InvalidGroupID:            "KAFKA_GROUP=group",
		kerr.InvalidSessionTimeout:     "KAFKA_SESSION_TIMEOUT=45s",
	} {
		fatal := consumer.fatal(err)
		require.ErrorContains(t, fatal, want)
		require.ErrorIs(t, fatal, err)
	}
	for _, err := range []error{nil, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedMemberEpoch, errors.New("some other")} {
		require.NoError(t, consumer.fatal(err))
	}
}
