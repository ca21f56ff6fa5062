// Package kafka starts real Apache Kafka brokers for tests: one node in KRaft
// mode, controller and broker in one, with a small heap, or a few that replicate.
//
//	pom.xml ──mvn──▶ .cache/kafka-<digest>/*.jar ──java──▶ broker, data in Options.Dir
//
// Nothing of Kafka is in this repository: Maven fetches what pom.xml pins, once.
// Without Java 17 or Maven, [Install] returns an error that is [ErrUnavailable].
//
// Ports and data stay the same over [Broker.Start] after [Broker.Terminate] or
// [Broker.Kill], so clients meet the broker that they knew.
package kafka
