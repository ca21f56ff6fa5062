package telemetry

import (
	"errors"
	"io"
	"log/slog"

	"github.com/quiesce-io/quiesce/internal/config"
)

// LogConfig says how a process logs.
type LogConfig struct {
	Level  string `env:"LOG_LEVEL" help:"Least level that is logged: debug, info, warn or error."`
	Format string `env:"LOG_FORMAT" help:"Form of log lines: text or json."`
}

// DefaultLogConfig returns the defaults.
func DefaultLogConfig() LogConfig { return LogConfig{Level: "info", Format: "text"} }

// Validate returns every fault.
func (c LogConfig) Validate() error {
	var faults []error
	if new(slog.Level).UnmarshalText([]byte(c.Level)) != nil {
		faults = append(faults, config.Fault{Name: "LOG_LEVEL", Value: c.Level, Problem: "must be debug, info, warn or error"})
	}
	if c.Format != "text" && c.Format != "json" {
		faults = append(faults, config.Fault{Name: "LOG_FORMAT", Value: c.Format, Problem: "must be text or json"})
	}
	return errors.Join(faults...)
}

// Logger returns a logger that writes to w.
func (c LogConfig) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // Validate has seen it
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
