package consumer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// tokenTimeout bounds KAFKA_OAUTH_TOKEN_COMMAND; a connection waits for it.
const tokenTimeout = 10 * time.Second

// token returns the token for OAUTHBEARER, for one connection. Whoever renews it
// replaces the file, or answers the command with another.
func (c Config) token(ctx context.Context) (string, error) {
	fault := config.Fault{Name: "KAFKA_OAUTH_TOKEN_FILE", Value: c.OAuthTokenFile}
	read := func() ([]byte, error) { return os.ReadFile(c.OAuthTokenFile) }
	if words := strings.Fields(c.OAuthTokenCommand); len(words) > 0 {
		fault = config.Fault{Name: "KAFKA_OAUTH_TOKEN_COMMAND", Value: words[0]} // its arguments may be secret
		read = func() ([]byte, error) { return output(ctx, words) }
	}
	raw, err := read()
	token := strings.TrimSpace(string(raw))
	switch {
	case err != nil:
		fault.Problem = err.Error()
	case token == "":
		fault.Problem = "holds no token"
	default:
		return token, nil
	}
	return "", fault
}

// output runs a command and returns what it prints. What it says on stderr is
// part of the error.
func output(ctx context.Context, words []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	var said bytes.Buffer
	command.Stderr = &said
	// Children that it leaves behind must not keep us waiting for its output.
	command.WaitDelay = time.Second
	printed, err := command.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("no token within %s: %w", tokenTimeout, ctx.Err())
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n"); err != nil && line != "" {
		err = fmt.Errorf("%w: %.200s", err, line)
	}
	return printed, err
}
