// Package stack starts what Quiesce runs between: Temporal, Kafka, Spanner and
// the upstream simulator, each embedded unless the environment names one.
//
//	part      used if set              else
//	Temporal  TEMPORAL_ADDRESS         `temporal server start-dev` if on the PATH, else deploy/local/temporal
//	Kafka     KAFKA_BROKERS            kfake in this process
//	Spanner   SPANNER_EMULATOR_HOST    the emulator of the Google Cloud SDK, else spannermemory in this process
//	upstream                           deploy/local/upstream in this process
//
// The authority on addresses is [Stack.Env]: what it returns is what the bridge
// and the worker, started with [Stack.Binary] and [Process], need.
//
// Child processes get a process group of their own, so that Ctrl-C reaches the
// parent only and the parent decides who stops when. On Linux they are killed
// with their parent; elsewhere a parent that is killed leaves them behind.
package stack
