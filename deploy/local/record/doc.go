// Record plays each behaviour of AccountSync against a real Temporal server and
// the real worker, and writes the histories to workflows/testdata/histories,
// where the root module's tests replay them:
//
//	go run ./record        (in deploy/local; needs the Spanner emulator)
//
// It takes the bridge's part itself, through the bridge's own client, so that a
// history shows one behaviour and nothing else. Record again when the workflow
// changes on purpose: histories that no longer replay are runs in flight that a
// deployment would break, so first give the change a version (GetVersion) and
// only then record what is new, keeping the old.
package main
