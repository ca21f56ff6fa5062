// Package e2e tests bridge and worker as processes on the embedded stack: a
// real Temporal server, kfake, the Spanner emulator and the upstream simulator.
//
// The stack is started once. Each test has a pipeline of its own, with its own
// topics, database, simulator, bridges and workers, which are killed with real
// signals. Tests that pause a part of the stack, or need it to answer at once,
// are not parallel; all others are, because most of their time is the settle
// delay.
//
// What is asserted is seen from outside: the simulator knows every change that
// was made and every call that arrived; rows and sync log are read from Spanner,
// offsets from Kafka. See verdict for what has to hold at the end of every test.
package e2e
