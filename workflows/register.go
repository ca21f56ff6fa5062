package workflows

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/quiesce-io/quiesce/workflows/contract"
)

// Register registers every workflow under its contract name.
func Register(registry worker.WorkflowRegistry) {
	for _, name := range []string{contract.AccountSync, contract.ParkedAccountSync} {
		registry.RegisterWorkflowWithOptions(AccountSync, workflow.RegisterOptions{Name: name})
	}
	registry.RegisterWorkflowWithOptions(Replay, workflow.RegisterOptions{Name: contract.Replay})
}
