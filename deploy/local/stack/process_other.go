//go:build !linux

package stack

import "syscall"

// childAttributes gives a child its own process group, so that the terminal's
// Ctrl-C does not reach it.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
