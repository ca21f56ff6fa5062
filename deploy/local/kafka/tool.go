package kafka

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// tools are the classes behind Kafka's scripts, which Maven does not carry.
var tools = map[string]string{
	"kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}

// Run runs a command line that begins with the name of one of Kafka's scripts,
// as an operator would, and returns its output.
func (i Installation) Run(ctx context.Context, commandLine string) (string, error) {
	words := strings.Fields(commandLine)
	if len(words) == 0 || tools[words[0]] == "" {
		return "", fmt.Errorf("%q: unknown script", commandLine)
	}
	output, err := exec.CommandContext(ctx, i.java, i.args("", tools[words[0]], words[1:]...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", commandLine, err, output)
	}
	return string(output), nil
}
