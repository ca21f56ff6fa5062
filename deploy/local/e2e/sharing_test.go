package e2e

import (
	"fmt"
	"testing"
)

// TestPipelinesShareANamespace runs two pipelines with the same accounts.
func TestPipelinesShareANamespace(t *testing.T) {
	t.Parallel()
	pipelines := []*pipeline{newPipeline(t), newPipeline(t)}
	var accounts []string
	for i := range 8 {
		accounts = append(accounts, fmt.Sprintf("account-%d", i))
	}
	for _, p := range pipelines {
		p.startBoth()
	}
	for round := range 2 {
		for i, p := range pipelines {
			p.change(accounts...)
			if i == 0 && round == 0 {
				p.change(accounts...) // so that versions differ between the two
			}
		}
	}
	for i, p := range pipelines {
		p.drained()
		v := p.verdict()
		p.noWaste(v)
		for _, account := range accounts {
			if got, want := v.rows[account].Version, int64(3-i); got != want {
				t.Errorf("%s: %s has version %d, want %d", p.name, account, got, want)
			}
		}
	}
}
