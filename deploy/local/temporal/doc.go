// Temporal is Temporal's own server and web UI in one process on SQLite, for
// developing and testing on a machine that has nothing but Go.
//
//	go run . --listen 127.0.0.1:7233 --ui 127.0.0.1:8233 --namespace default
//
// It prints one line, "ready frontend=HOST:PORT ui=http://HOST:PORT", once the
// namespace answers, and stops on SIGINT or SIGTERM. Port 0 chooses a free port.
// Everything that is logged goes to stderr.
//
// It is a module of its own because the server brings some two hundred
// requirements and a first build of minutes: nothing else here should pay that.
// It is not for production: one history shard, one process, no authentication.
package main
