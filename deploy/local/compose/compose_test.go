package compose

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

const (
	quiesceImage = "quiesce:local"
	localImage   = "quiesce-local:local"
)

// others are the variables that libraries read, by the prefix or name that they
// document.
var others = regexp.MustCompile(`^(TEMPORAL_(ADDRESS|NAMESPACE|API_KEY|TLS\w*)|SPANNER_EMULATOR_HOST|DD_(AGENT_HOST|DOGSTATSD_PORT|DOGSTATSD_URL|ENV|SERVICE|VERSION|ENTITY_ID))$`)

// load reads the file with every profile on and env as the environment.
func load(t *testing.T, env ...string) *types.Project {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")},
		cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

// binaries are the paths of what the images hold.
func binaries(t *testing.T) map[string]string {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	paths := map[string]string{}
	for _, name := range []string{"bridge", "worker"} {
		paths[name], err = stack.BuildBinary(t.Context(), root, name)
		require.NoError(t, err)
	}
	paths["quiesce-local"] = filepath.Join(t.TempDir(), "quiesce-local")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", paths["quiesce-local"], ".")
	build.Dir = filepath.Join(root, "deploy", "local")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return paths
}

// environment returns a service's variables as KEY=VALUE.
func environment(s types.ServiceConfig) []string {
	var env []string
	for name, value := range s.Environment {
		if value != nil {
			env = append(env, name+"="+*value)
		}
	}
	return env
}

func ours(s types.ServiceConfig) bool { return s.Image == quiesceImage || s.Image == localImage }

func TestEveryServiceIsThere(t *testing.T) {
	project := load(t)
	require.ElementsMatch(t, []string{
		"kafka", "postgres", "temporal-schema", "temporal", "temporal-namespace", "temporal-ui", "spanner",
		"prepare", "migrate", "simulator", "bridge", "worker", "datadog",
	}, project.ServiceNames())
	require.Equal(t, []string{"datadog"}, project.Services["datadog"].Profiles)
	for name, s := range project.Services {
		require.Empty(t, s.ContainerName, "%s: a fixed name cannot be scaled", name)
		if !ours(s) {
			require.Regexp(t, `:v?[0-9]+\.[0-9]+(\.[0-9]+)?$`, s.Image, "%s: the image is pinned", name)
		} else {
			require.Equal(t, "deploy/Dockerfile", s.Build.Dockerfile, name)
			require.Equal(t, map[string]string{quiesceImage: "quiesce", localImage: "local"}[s.Image], s.Build.Target, name)
		}
	}
	for _, name := range []string{"bridge", "worker"} {
		for _, port := range project.Services[name].Ports {
			require.Empty(t, port.Published, "%s: a fixed port cannot be scaled", name)
		}
	}
}

// TestStartIsOrdered holds that whoever waits for another waits for something
// that can come, and that bridge and worker wait for all they need.
func TestStartIsOrdered(t *testing.T) {
	project := load(t)
	after := map[string]bool{}
	var walk func(of, name string)
	walk = func(of, name string) {
		for dependency := range project.Services[name].DependsOn {
			after[of+" after "+dependency] = true
			walk(of, dependency)
		}
	}
	for name, s := range project.Services {
		walk(name, name)
		for on, dependency := range s.DependsOn {
			target := project.Services[on]
			switch dependency.Condition {
			case types.ServiceConditionHealthy:
				require.NotNil(t, target.HealthCheck, "%s waits for %s to be healthy", name, on)
			case types.ServiceConditionCompletedSuccessfully:
				require.Nil(t, target.HealthCheck, "%s waits for %s to end", name, on)
				require.Equal(t, "on-failure:10", target.Restart, "%s: a first try may come too early", on)
			default:
				require.Equal(t, "spanner", on, "%s: %s has a way to tell that it is up", name, on)
			}
		}
	}
	for _, order := range []string{
		"bridge after kafka", "bridge after temporal-namespace", "bridge after prepare", "temporal after temporal-schema",
		"worker after migrate", "worker after temporal-namespace", "worker after simulator", "migrate after spanner", "simulator after kafka",
	} {
		require.Contains(t, after, order)
	}
}

func TestCommandsAndVariablesAreAccepted(t *testing.T) {
	project, paths := load(t, "DD_AGENT_HOST=datadog", "DD_API_KEY=key"), binaries(t)
	for name, s := range project.Services {
		if !ours(s) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			require.Contains(t, paths, s.Command[0], "the program is in the image")
			run := func(args ...string) string {
				cmd := exec.CommandContext(t.Context(), paths[args[0]], args[1:]...)
				cmd.Env = append(environment(s), "PATH="+os.Getenv("PATH"))
				output, err := cmd.CombinedOutput()
				require.NoError(t, err, "%q: %s", args, output)
				return string(output)
			}
			help := run(append(slices.Clone(s.Command), "--help")...)
			if s.HealthCheck != nil {
				require.Equal(t, "CMD", s.HealthCheck.Test[0], "the image has no shell")
				run(s.HealthCheck.Test[1], s.HealthCheck.Test[2], "--help")
			}
			accepted := map[string]bool{}
			if s.Image == quiesceImage {
				for match := range slices.Values(regexp.MustCompile(`\[([A-Z_]+)\]`).FindAllStringSubmatch(help, -1)) {
					accepted[match[1]] = true
				}
			} else {
				for variable := range slices.Values([]string{"KAFKA_BROKERS", "SPANNER_EMULATOR_HOST"}) {
					accepted[variable] = strings.Contains(help, variable)
				}
			}
			for variable := range maps.Keys(s.Environment) {
				require.True(t, accepted[variable] || s.Image == quiesceImage && others.MatchString(variable), "%s %v does not know %s", name, s.Command, variable)
			}
			if s.Command[1] == "run" { // the values too
				run(s.Command[0], "config")
			}
		})
	}
	require.Equal(t, "datadog", *project.Services["worker"].Environment["DD_AGENT_HOST"])
	require.Empty(t, *load(t).Services["worker"].Environment["DD_AGENT_HOST"], "no agent, no metrics")
}

// TestReadmeTellsEveryPort holds each published port against the README.
func TestReadmeTellsEveryPort(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	for name, s := range load(t).Services {
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s: none of this is for the network", name)
			want := "localhost:" + port.Published
			if port.Published == "" {
				want = "docker compose port " + name
			}
			require.True(t, strings.Contains(string(readme), want), "%s publishes port %d: the README does not say %s", name, port.Target, want)
		}
	}
}
