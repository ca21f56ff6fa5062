package consumer

import "github.com/twmb/franz-go/pkg/kgo"

// Connection returns the options that any client needs to reach the brokers, for
// those who read without joining the group: audits and replays.
func (c Config) Connection() ([]kgo.Opt, error) { return c.connection() }
