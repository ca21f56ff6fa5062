package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/quiesce-io/quiesce/internal/config"
)

// Exit codes of both binaries.
const (
	ExitOK     = 0
	ExitFailed = 1 // it was tried and did not work
	ExitUsage  = 2 // settings or arguments are wrong; nothing was done
)

// Command is one command of a binary.
type Command struct {
	// Name is the command with its arguments in capitals, those that may be
	// missing in brackets: "where TOPIC/PARTITION/OFFSET", "audit [ACCOUNT]".
	Name    string
	Summary string // one line
	Help    string // what else there is to know, may be empty
	// Needs names the settings without which it does not work, may be empty.
	Needs string
	// Examples are command lines without the binary's name.
	Examples []string
	// Settings are pointers to the structs that the command loads, see
	// package config.
	Settings []any
	// Validate checks the loaded settings; may be nil.
	Validate func() error
	// Flags adds flags that are no settings; may be nil.
	Flags func(*flag.FlagSet)
	// Run does it. args are what is left after the flags.
	Run func(ctx context.Context, command *Invocation) error
}

// Invocation is what a running command has at hand.
type Invocation struct {
	Args     []string
	Stdout   io.Writer
	Stderr   io.Writer
	Settings []config.Setting
}

// UsageError is a mistake of the operator: settings or arguments that cannot be.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Main runs the command that args name and returns the exit code. SIGINT and
// SIGTERM cancel the command's context; a second one ends the process at once.
func Main(binary string, args []string, commands []Command) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 1) // the first is enough
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		first := <-signals
		signal.Stop(signals) // from here on one has its default effect
		fmt.Fprintf(os.Stderr, "%s: %s: stopping; a second signal ends it at once\n", binary, first)
		cancel()
	}()
	return runIn(ctx, os.Environ(), binary, args, commands, os.LookupEnv, os.Stdout, os.Stderr)
}

// Run is [Main] without a process around it, and without a look at variables
// that are no setting.
func Run(ctx context.Context, binary string, args []string, commands []Command, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	return runIn(ctx, nil, binary, args, commands, lookup, stdout, stderr)
}

func runIn(ctx context.Context, environ []string, binary string, args []string, commands []Command, lookup func(string) (string, bool), stdout, stderr io.Writer) int {
	commands = withBuiltins(binary, commands)
	if len(args) == 0 {
		usage(stderr, binary, commands)
		return ExitUsage
	}
	args = familiar(args)
	if isHelp(args[0]) {
		usage(stdout, binary, commands)
		return ExitOK
	}
	command, rest, ok := find(commands, args)
	if !ok {
		return unknown(stdout, stderr, binary, args, commands)
	}
	set := config.Bind(binary+" "+command.Name, command.Settings...)
	if command.Flags != nil {
		command.Flags(set.Flags)
	}
	err := set.Load(rest, lookup)
	if errors.Is(err, flag.ErrHelp) {
		help(stdout, binary, command, set)
		return ExitOK
	}
	warnMisspelt(stderr, prefix(binary, command), environ)
	if err == nil { // else nobody knows what is an argument and what a flag's value
		err = command.arguments(set.Args)
	}
	if command.Validate != nil {
		err = errors.Join(err, command.Validate())
	}
	if err != nil {
		return fail(stderr, binary, command, UsageError{err})
	}
	err = command.Run(ctx, &Invocation{Args: set.Args, Stdout: stdout, Stderr: stderr, Settings: set.Settings()})
	if err != nil {
		return fail(stderr, binary, command, err)
	}
	return ExitOK
}

// familiar turns what people type out of habit into commands of ours: "help
// COMMAND" and "--version".
func familiar(args []string) []string {
	switch {
	case args[0] == "help" && len(args) > 1:
		return append(args[1:len(args):len(args)], "--help")
	case args[0] == "--version" || args[0] == "-version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

// unknown answers for args that begin with no command. The first word of some
// commands, alone or with --help, is a question for those.
func unknown(stdout, stderr io.Writer, binary string, args []string, commands []Command) int {
	var family []Command
	for _, c := range commands {
		if words := c.words(); len(words) > 1 && words[0] == args[0] {
			family = append(family, c)
		}
	}
	switch {
	case len(family) > 0 && len(args) > 1 && isHelp(args[1]):
		usage(stdout, binary, family)
		return ExitOK
	case len(family) > 0 && len(args) == 1:
		usage(stderr, binary, family)
		return ExitUsage
	}
	wanted := args[0]
	if len(family) > 0 {
		wanted += " " + args[1]
	} else {
		family = commands
	}
	var names []string
	for _, c := range family {
		names = append(names, strings.Join(c.words(), " "))
	}
	fmt.Fprintf(stderr, "%s: there is no command %q; want one of: %s\n", binary, wanted, strings.Join(names, ", "))
	return ExitUsage
}

// find returns the command whose name args begin with; names may have two words.
func find(commands []Command, args []string) (Command, []string, bool) {
	for _, c := range commands {
		words := c.words()
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == strings.Join(words, " ") {
			return c, args[len(words):], true
		}
	}
	return Command{}, nil, false
}

// words are the words of the name that are not arguments.
func (c Command) words() []string {
	var words []string
	for _, word := range strings.Fields(c.Name) {
		if word == strings.ToUpper(word) {
			break
		}
		words = append(words, word)
	}
	return words
}

// arguments checks that there are as many as the name announces.
func (c Command) arguments(args []string) error {
	announced := strings.Fields(c.Name)[len(c.words()):]
	switch {
	case len(args) < len(announced) && !strings.HasPrefix(announced[len(args)], "["):
		return fmt.Errorf("%s is missing", announced[len(args)])
	case len(args) > len(announced):
		return fmt.Errorf("unexpected argument %q", args[len(announced)])
	}
	return nil
}

func prefix(binary string, command Command) string {
	return binary + " " + strings.Join(command.words(), " ") + ": "
}

func fail(w io.Writer, binary string, command Command, err error) int {
	prefix := prefix(binary, command)
	usage := UsageError{}
	if !errors.As(err, &usage) {
		fmt.Fprintln(w, prefix+err.Error())
		return ExitFailed
	}
	lines := strings.Split(usage.Error(), "\n")
	if len(lines) == 1 {
		fmt.Fprintln(w, prefix+lines[0])
		return ExitUsage
	}
	fmt.Fprintf(w, "%s%d things to mend:\n", prefix, len(lines))
	for _, line := range lines {
		fmt.Fprintln(w, "  "+line)
	}
	return ExitUsage
}

func usage(w io.Writer, binary string, commands []Command) {
	fmt.Fprintf(w, "usage: %s COMMAND [flags]\n\n", binary)
	width := 0
	for _, c := range commands {
		width = max(width, len(c.Name))
	}
	for _, c := range commands {
		fmt.Fprintf(w, "  %-*s  %s\n", width, c.Name, c.Summary)
	}
	fmt.Fprintf(w, `
Every setting is an environment variable and a flag: SETTLE_TIME is --settle-time.
%s
%s
%s COMMAND --help says what a command needs and takes, with examples.
`, outsideSettings, exitCodes, binary)
}

const (
	outsideSettings = "Temporal is found by the standard TEMPORAL_* variables (TEMPORAL_ADDRESS, default localhost:7233;\n" +
		"TEMPORAL_NAMESPACE, default default), Datadog's agent by DD_*, a Spanner emulator by SPANNER_EMULATOR_HOST."
	exitCodes = "Exit status: 0 done; 1 tried and failed; 2 settings or arguments are wrong, and nothing was done."
)

func help(w io.Writer, binary string, command Command, set *config.Set) {
	fmt.Fprintf(w, "usage: %s %s [flags]\n\n%s\n", binary, command.Name, command.Summary)
	if command.Help != "" {
		fmt.Fprintf(w, "\n%s\n", command.Help)
	}
	if command.Needs != "" {
		fmt.Fprintf(w, "\nNeeds %s.\n", command.Needs)
	}
	if len(command.Examples) > 0 {
		fmt.Fprintln(w, "\nExamples:")
	}
	for _, example := range command.Examples {
		fmt.Fprintf(w, "  %s %s\n", binary, example)
	}
	settings := map[string]config.Setting{}
	for _, s := range set.Settings() {
		settings[s.Flag] = s
	}
	// What is particular to the command comes before the settings, which are many.
	list(w, "Flags:", set.Flags, func(f *flag.Flag) (string, bool) {
		_, isSetting := settings[f.Name]
		return "", !isSetting
	})
	list(w, "Settings, as flags or environment variables:", set.Flags, func(f *flag.Flag) (string, bool) {
		s, isSetting := settings[f.Name]
		return " [" + s.Name + "]", isSetting
	})
	fmt.Fprintf(w, "\n%s\n", exitCodes)
}

// list prints a title and the flags that mark chooses, each with its mark.
func list(w io.Writer, title string, flags *flag.FlagSet, mark func(*flag.Flag) (string, bool)) {
	flags.VisitAll(func(f *flag.Flag) {
		origin, chosen := mark(f)
		if !chosen {
			return
		}
		if title != "" {
			fmt.Fprintf(w, "\n%s\n", title)
			title = ""
		}
		if f.DefValue != "" && f.DefValue != "false" {
			origin += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  --%s%s\n        %s\n", f.Name, origin, f.Usage)
	})
}

// Started is the error of a start: nil where the process was asked to stop
// meanwhile, since then nothing is wrong with what it was waiting for.
func Started(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Bounded runs f and gives up on it once ctx is done and grace has passed: what
// is stuck must not keep the process alive.
func Bounded(ctx context.Context, grace time.Duration, f func() error) error {
	done := make(chan error, 1) // f may outlive us
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("did not stop within %s", grace)
	}
}
