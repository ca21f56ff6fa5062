// Package startup holds the tests of how bridge and worker start, stop, and bear
// what is wrong around them: the real binaries, with one thing wrong at a time,
// for every dependency and every stage.
//
//	start_test.go    what is wrong when they start: exit code, message, time
//	security_test.go the same for what they are not allowed to do
//	stop_test.go     signals at every stage of start-up, work and stop
//	flight_test.go   dependencies that go out and come back while they work
//	clock_test.go    clocks that are apart
//	disk_test.go     no space left for the stack
package startup
