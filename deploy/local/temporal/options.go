package main

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/testing/freeport"
)

// options are the parsed flags, with every port 0 replaced by a free one.
type options struct {
	frontend  netip.AddrPort
	ui        netip.AddrPort // invalid: no UI
	namespace string
	database  string // path of the SQLite file; empty: in memory
	logLevel  string
	dynamic   dynamicconfig.StaticClient
}

func parse(args []string, stderr io.Writer) (options, error) {
	opts := options{dynamic: dynamicconfig.StaticClient{}}
	flags := flag.NewFlagSet("temporal", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:7233", "address of the frontend; port 0 chooses a free one")
	ui := flags.String("ui", "127.0.0.1:8233", "address of the web UI; port 0 chooses a free one, empty starts none")
	flags.StringVar(&opts.namespace, "namespace", "default", "namespace to create")
	flags.StringVar(&opts.database, "db", "", "SQLite file to keep state in; empty keeps it in memory")
	flags.StringVar(&opts.logLevel, "log-level", "error", "debug, info, warn or error")
	flags.Func("dynamic-config", "KEY=VALUE, repeated: overrides one dynamic config setting", func(text string) error {
		key, value, err := parseDynamic(text)
		if err != nil {
			return err
		}
		opts.dynamic[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if opts.namespace == "" {
		return options{}, fmt.Errorf("--namespace: must not be empty")
	}
	var err error
	if opts.frontend, err = address(*listen); err != nil {
		return options{}, fmt.Errorf("--listen: %w", err)
	}
	if *ui != "" {
		if opts.ui, err = address(*ui); err != nil {
			return options{}, fmt.Errorf("--ui: %w", err)
		}
	}
	return opts, nil
}

// address parses IP:PORT. The server's configuration takes numbers only, so a
// free port has to be chosen before it listens.
func address(text string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q: want IP:PORT", text)
	}
	if addr.Port() == 0 {
		addr = netip.AddrPortFrom(addr.Addr(), uint16(freeport.MustGetFreePort()))
	}
	return addr, nil
}

// parseDynamic reads KEY=VALUE. A value is an int, a float or a bool where it
// reads as one, else a string; the server itself parses durations from strings.
func parseDynamic(text string) (dynamicconfig.Key, any, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return dynamicconfig.Key{}, nil, fmt.Errorf("want KEY=VALUE")
	}
	key := dynamicconfig.MakeKey(name)
	if n, err := strconv.Atoi(value); err == nil {
		return key, n, nil
	}
	if f, err := strconv.ParseFloat(value, 64); err == nil {
		return key, f, nil
	}
	if b, err := strconv.ParseBool(value); err == nil {
		return key, b, nil
	}
	return key, value, nil
}
