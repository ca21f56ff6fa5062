// Package kafkatest runs the bridge's Kafka side, the real consumer with ledger
// and buffer, against brokers: kfake in this process, and Apache Kafka. Every
// test runs on each; where the two differ, the test says so, and docs/kafka.md.
// Temporal takes no part: changes are completed by the test.
//
//	go test ./kafkatest                  on kfake
//	go test ./kafkatest -kafka apache    on Apache Kafka, fetched by Maven
//
// While a test runs, a watcher reads its group's offsets and fails the test when
// a commit goes backwards, or covers a record that was not completed.
package kafkatest
