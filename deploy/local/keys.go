package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// pressed is a key to press at a time, counted from when changes begin.
type pressed struct {
	key   byte
	after time.Duration
}

// parseKeys reads "w@10s,b@20s".
func parseKeys(text string) ([]pressed, error) {
	var keys []pressed
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		key, at, found := strings.Cut(word, "@")
		after, err := time.ParseDuration(at)
		if !found || err != nil || after < 0 || len(key) != 1 || !strings.Contains(knownKeys, key) {
			return nil, fmt.Errorf("%w: keys=%s: want KEY@TIME such as w@10s, with a key of %s", errUsage, word, knownKeys)
		}
		keys = append(keys, pressed{key[0], after})
	}
	return keys, nil
}

// listenKeys delivers keys: those given at their times, and those that are typed
// where stdin and stdout are a terminal, which then hands over each at once and
// shows none. The returned function sets the terminal back.
func listenKeys(ctx context.Context, given []pressed, terminal bool) (keys <-chan byte, typed bool, restore func()) {
	delivered := make(chan byte) // unbuffered: a key counts when it is looked at
	send := func(key byte) bool {
		select {
		case delivered <- key:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for _, p := range given {
		go func() {
			select {
			case <-time.After(p.after):
				send(p.key)
			case <-ctx.Done():
			}
		}()
	}
	if !terminal || !isTerminal(os.Stdin) {
		return delivered, false, func() {}
	}
	saved, err := stty("-g")
	if err != nil {
		return delivered, false, func() {}
	}
	restore = func() { stty(strings.TrimSpace(saved)) } //nolint:errcheck // nothing else can be done
	if _, err := stty("-icanon", "-echo", "min", "1"); err != nil {
		restore()
		return delivered, false, func() {}
	}
	go func() { // ends with the process: nothing interrupts a read of stdin
		buffer := make([]byte, 1)
		for {
			if n, err := os.Stdin.Read(buffer); err != nil || n == 1 && !send(buffer[0]) {
				return
			}
		}
	}()
	return delivered, true, restore
}

// stty runs stty on this process's terminal.
func stty(args ...string) (string, error) {
	cmd := exec.Command("stty", args...)
	cmd.Stdin = os.Stdin
	output, err := cmd.Output()
	return string(output), err
}
