package stack

import "syscall"

// childAttributes gives a child its own process group, so that the terminal's
// Ctrl-C does not reach it, and has it killed when its parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
