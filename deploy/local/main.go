package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: go run . COMMAND [flags]

  demo         run bridge and worker under traffic, show what they do, judge the result
  stack        keep everything around bridge and worker up, to run them by hand

  What docker-compose.yml runs, on a Kafka and Spanner that are up already:
  prepare      create topics, instance and database
  simulate     serve the simulated system of record and make changes in it
  healthy URL  exit with 0 if URL answers 200

COMMAND --help lists a command's flags. From the repository's root: make demo, make stack.
` + exitCodes + "\n"

const exitCodes = "Exit status: 0 done; 1 it failed, or a promise was broken; 2 a mistake in the command, and nothing was done."

// find returns the command of that name, nil if there is none.
func find(name string) func(stop stopper, args []string, stdout, stderr io.Writer) error {
	switch name {
	case "demo":
		return demoCommand
	case "stack":
		return stackCommand
	case "prepare":
		return prepareCommand
	case "simulate":
		return simulateCommand
	case "healthy":
		return healthyCommand
	}
	return nil
}

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
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	}
	command := find(args[0])
	if command == nil {
		fmt.Fprintf(stderr, "%v: unknown command %q; want demo, stack, prepare, simulate or healthy\n", errUsage, args[0])
		return 2
	}
	stop := listen()
	defer stop.release()
	err := command(stop, args[1:], stdout, stderr)
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
// of one line. Help goes to stdout: about says in words what the command does.
func parseFlags(flags *flag.FlagSet, about string, args []string, stdout io.Writer) error {
	flags.SetOutput(io.Discard) // the flag package prints all flags on any mistake
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printHelp(stdout, flags, about)
			return err
		}
		return fmt.Errorf("%w: %s: %w (%[2]s --help lists the flags)", errUsage, flags.Name(), err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: %s: unexpected argument %q", errUsage, flags.Name(), flags.Arg(0))
	}
	return nil
}

func printHelp(w io.Writer, flags *flag.FlagSet, about string) {
	fmt.Fprintf(w, "usage: %s [flags]\n\n%s\n", flags.Name(), about)
	defer fmt.Fprintf(w, "\n%s\n", exitCodes)
	title := "\nFlags:\n"
	flags.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		fmt.Fprint(w, title)
		title = ""
		fmt.Fprintf(w, "  --%s %s", f.Name, value)
		if f.DefValue != "" {
			fmt.Fprintf(w, " (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, "\n        %s\n", text)
	})
}
