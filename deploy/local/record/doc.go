// Record plays each behaviour of the workflows against a real Temporal server and
// the real worker, and writes the histories to a new directory below
// workflows/testdata/histories, named by date and version, where the root
// module's tests replay them beside those of all versions before:
//
//	make record        (needs the Spanner emulator)
//
// It takes the bridge's part itself, through the bridge's own client, so that a
// history shows one behaviour and nothing else. Record when a workflow has
// changed on purpose. Histories of versions before that no longer replay are runs
// in flight that a deployment would break: give the change a version
// (GetVersion), and leave them as they are. They may go when nobody can have a run
// of that version any more.
package main
