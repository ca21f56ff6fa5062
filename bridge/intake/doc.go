// Package intake turns a Kafka record into what the bridge wants to know of it:
// is it a change, of which account, and when did it happen. It is pure, and
// keeps nothing of the record: the fetch buffer that a record points into is
// large, and one retained key would keep all of it alive.
package intake
