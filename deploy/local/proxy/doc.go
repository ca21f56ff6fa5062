// Package proxy stands between a process and what it depends on, for tests of
// what happens when that is out: [Gate] cuts or silences connections of any
// kind, [GRPC] holds, refuses or changes single requests.
package proxy
