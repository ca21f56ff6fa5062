package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: go run . demo|stack [flags]

  demo    run the main job under traffic, then judge it (demo -h for flags)
  stack   keep the parts around bridge and worker up (stack -h for flags)
`

// errUsage marks mistakes of whoever typed the command.
var errUsage = errors.New("usage")

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0 for success, 1 for a run that failed or broke a
// promise, 2 for a mistake in the command.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	stop := listen()
	defer stop.release()
	var err error
	switch args[0] {
	case "demo":
		err = demoCommand(stop, args[1:], stdout, stderr)
	case "stack":
		err = stackCommand(stop, args[1:], stdout, stderr)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		err = fmt.Errorf("%w: unknown command %q; want demo or stack", errUsage, args[0])
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, err)
		return 2
	default:
		fmt.Fprintln(stderr, err)
		return 1
	}
}

// stopper tells of the two ways to stop: after the first SIGINT or SIGTERM soft
// ends and work in flight may finish; the second ends hard.
type stopper struct {
	soft, hard context.Context
	release    func()
}

func listen() stopper {
	hard, cancelHard := context.WithCancel(context.Background())
	soft, cancelSoft := context.WithCancel(hard)
	signals := make(chan os.Signal, 2) // both may come before the goroutine runs
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, cancel := range []context.CancelFunc{cancelSoft, cancelHard} {
			select {
			case <-signals:
				cancel()
			case <-hard.Done():
				return
			}
		}
	}()
	return stopper{soft: soft, hard: hard, release: func() {
		signal.Stop(signals)
		cancelHard()
		<-ended
	}}
}

// parseFlags parses args and turns what is wrong with them into a usage error
// of one line. Help goes to stderr.
func parseFlags(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	var text bytes.Buffer // the flag package prints all flags on any mistake
	flags.SetOutput(&text)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			stderr.Write(text.Bytes()) //nolint:errcheck
			return err
		}
		return fmt.Errorf("%w: %s: %w (%[2]s -h lists the flags)", errUsage, flags.Name(), err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %s: unexpected argument %q", errUsage, flags.Name(), flags.Arg(0))
	}
	return nil
}
