package compose

import (
	"fmt"
	"strings"
)

// Stage is one stage of a Dockerfile.
type Stage struct {
	Name, Base string
	Steps      []Step
}

// Step is one instruction, such as RUN, with the rest of its line; continued
// lines are joined.
type Step struct{ Instruction, Rest string }

// Stages reads the little of a Dockerfile's syntax that ours uses; of the rest
// it says so.
func Stages(text string) ([]Stage, error) {
	var stages []Stage
	text = strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		if strings.Contains(rest, "<<") {
			return nil, fmt.Errorf("%q: here-documents are not understood", line)
		}
		switch {
		case instruction == "FROM":
			words := strings.Fields(rest)
			if len(words) != 3 || words[1] != "AS" {
				return nil, fmt.Errorf("%q: want FROM BASE AS NAME", line)
			}
			stages = append(stages, Stage{Name: words[2], Base: words[0]})
		case len(stages) == 0:
			return nil, fmt.Errorf("%q: comes before any FROM", line)
		default:
			last := &stages[len(stages)-1]
			last.Steps = append(last.Steps, Step{instruction, rest})
		}
	}
	return stages, nil
}
