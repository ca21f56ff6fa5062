package upstream

import (
	"errors"
	"strings"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// What 404 and 410 mean.
const (
	NotFoundDelete = "delete" // the account is gone: mark its row deleted
	NotFoundPark   = "park"   // an error of this account
)

// Config holds the settings of a [Client].
type Config struct {
	URL URL `env:"UPSTREAM_URL" help:"URL of one account in the system of record, with {account} where its key goes; required."`
	// Timeout bounds a call from dialling to the body's last byte. Until its request
	// is written it has contract.SendWithin, if that is less.
	Timeout time.Duration `env:"UPSTREAM_TIMEOUT" help:"Longest time for one upstream call, connecting and reading included."`
	// MaxBytes counts the body after decompression.
	MaxBytes config.Bytes `env:"UPSTREAM_MAX_BYTES" help:"Largest upstream response body; a larger one is refused."`
	NotFound string       `env:"UPSTREAM_NOT_FOUND" help:"What 404 and 410 with JSON or nothing in the body mean: delete (mark the row deleted) or park (an error of this account). With anything else they count as an outage."`
	// TokenFile is read again whenever it changes, so that a token can be
	// rotated without a restart.
	TokenFile string `env:"UPSTREAM_TOKEN_FILE" help:"File with a bearer token for upstream, re-read when it changes; empty sends none."`
	// Headers go with every call. They are secret as a whole: what they hold is
	// mostly keys.
	Headers config.Secret `env:"UPSTREAM_HEADERS" help:"Further headers of every call, a line each, as Name: value; empty sends none."`
	TLS     TLS
	// Version has answers say how new they are, see [contract.Version].
	Version string `env:"UPSTREAM_VERSION" help:"Where an answer says how new it is, an integer or an RFC 3339 time: json:PATH or header:NAME; with the bridge's CHANGE_VERSION, one that is older than its change is not written. Empty: the settle time decides alone."`
}

// Default returns a Config in which UPSTREAM_URL is still missing.
func Default() Config {
	return Config{Timeout: 2 * time.Second, MaxBytes: 1 << 20, NotFound: NotFoundDelete}
}

// maxBodyBytes is the most that fits into a Spanner cell.
const maxBodyBytes = 10 << 20

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var faults []error
	fault := func(name, value, problem string) {
		faults = append(faults, config.Fault{Name: name, Value: value, Problem: problem})
	}
	if problem := c.URL.problem(); problem != "" {
		fault("UPSTREAM_URL", c.URL.String(), problem)
	}
	if c.Timeout <= 0 || c.Timeout > time.Minute {
		fault("UPSTREAM_TIMEOUT", c.Timeout.String(), "must be above 0 and at most 1m")
	}
	if c.MaxBytes < 1 || c.MaxBytes > maxBodyBytes {
		fault("UPSTREAM_MAX_BYTES", c.MaxBytes.String(), "must be from 1B to 10MiB, the most that fits into a Spanner cell")
	}
	if c.NotFound != NotFoundDelete && c.NotFound != NotFoundPark {
		fault("UPSTREAM_NOT_FOUND", c.NotFound, "must be delete or park")
	}
	if err := c.headersProblem(); err != nil {
		fault("UPSTREAM_HEADERS", c.Headers.String(), err.Error())
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		fault("UPSTREAM_TLS_CERT_FILE", c.TLS.CertFile, "goes with UPSTREAM_TLS_KEY_FILE: give both or neither")
	}
	if c.TLS != (TLS{}) && strings.HasPrefix(string(c.URL), "http://") {
		fault("UPSTREAM_URL", c.URL.String(), "must begin with https:// for UPSTREAM_TLS_… to mean anything")
	}
	if _, err := parseVersionSource(c.Version); err != nil {
		fault("UPSTREAM_VERSION", c.Version, err.Error())
	}
	return errors.Join(faults...)
}
