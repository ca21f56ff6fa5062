package process

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"

	"github.com/quiesce-io/quiesce/internal/config"
)

// ConfigCommand is the command that prints the effective settings, whether or
// not they are valid; what is wrong with them comes after, with exit status 2.
func ConfigCommand(settings any, validate func() error) Command {
	asJSON := false
	return Command{
		Name:    "config",
		Summary: "Print every setting: its effective value, its default and what it does.",
		Help: "Secrets are never printed. What is wrong with the settings comes last, all of it, with exit status 2.\n" +
			"Temporal's own settings are the standard TEMPORAL_* variables, Datadog's the DD_* ones.",
		Examples: []string{"config", "config --json", "config --log-format json"},
		Settings: []any{settings},
		Flags:    func(flags *flag.FlagSet) { flags.BoolVar(&asJSON, "json", false, "Print JSON.") },
		Run: func(_ context.Context, i *Invocation) error {
			if err := printSettings(i.Stdout, i.Settings, asJSON); err != nil {
				return err
			}
			if err := validate(); err != nil {
				return UsageError{err}
			}
			return nil
		},
	}
}

func printSettings(w io.Writer, settings []config.Setting, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(settings)
	}
	for _, s := range settings {
		if _, err := fmt.Fprintf(w, "%s=%s\n", s.Name, s.Value); err != nil {
			return err
		}
		fmt.Fprintf(w, "    %s", s.Help)
		if s.Value != s.Default {
			fmt.Fprintf(w, " Default: %s.", s.Default)
		}
		fmt.Fprintln(w)
	}
	return nil
}
