package manifests

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// others are the variables that libraries and the Go runtime read.
var others = regexp.MustCompile(`^(TEMPORAL_(ADDRESS|NAMESPACE)|GOMEMLIMIT|DD_(AGENT_HOST|ENTITY_ID))$`)

func root(t *testing.T) string {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	return root
}

func load(t *testing.T) Set {
	t.Helper()
	set, err := Load(filepath.Join(root(t), "deploy", "kubernetes"))
	require.NoError(t, err)
	return set
}

// containers are all containers with where they stand.
func containers(set Set) map[string]Pod {
	pods := map[string]Pod{}
	for _, kind := range []string{"Deployment", "Job"} {
		for name, o := range set.Find(kind) {
			pods[name] = o.Spec.Template.Spec
		}
	}
	return pods
}

func TestKustomizationNamesWhatIsThere(t *testing.T) {
	set := load(t)
	listed := append(slices.Clone(set.Kustomization.Resources), "scaling.yaml")
	require.ElementsMatch(t, slices.Collect(maps.Keys(set.Files)), listed, "all but the optional one")
	require.Contains(t, set.Find("Namespace"), set.Kustomization.Namespace)
	require.ElementsMatch(t, []string{"quiesce-bridge", "quiesce-worker", "quiesce-migrate"}, slices.Collect(maps.Keys(containers(set))))
	for name, pod := range containers(set) {
		require.Contains(t, set.Find("ServiceAccount"), pod.ServiceAccountName, name)
		for _, volume := range pod.Volumes {
			require.Contains(t, set.Find("Secret"), volume.Secret.SecretName, name)
		}
		for _, c := range pod.Containers {
			require.Equal(t, set.Kustomization.Images[0].Name, c.Image, name)
			for _, from := range c.EnvFrom {
				require.Contains(t, set.Find("ConfigMap"), from.ConfigMapRef.Name, name)
			}
		}
	}
}

// setting finds a variable in what `config` printed.
func setting(t *testing.T, printed, name string) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(printed)
	require.NotNil(t, match, name)
	return match[1]
}

// TestBinariesAcceptTheManifests holds commands, variables with their values,
// secrets' files, ports and times against the binaries.
func TestBinariesAcceptTheManifests(t *testing.T) {
	set := load(t)
	for name, pod := range containers(set) {
		c := pod.Containers[0]
		t.Run(name, func(t *testing.T) {
			binary, err := stack.BuildBinary(t.Context(), root(t), c.Command[0])
			require.NoError(t, err)
			// The files that the secrets become, where this process may write.
			files, dir := []string{}, t.TempDir()
			for _, mount := range c.VolumeMounts {
				require.Equal(t, "secrets", mount.Name)
				for _, volume := range pod.Volumes {
					for key, value := range set.Find("Secret")[volume.Secret.SecretName].StringData {
						require.NoError(t, os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600))
						files = append(files, path.Join(mount.MountPath, key))
					}
				}
			}
			run := func(env []string, args ...string) string {
				cmd := exec.CommandContext(t.Context(), binary, args...)
				cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
				output, err := cmd.CombinedOutput()
				require.NoError(t, err, "%q: %s", args, output)
				return string(output)
			}
			env := set.Env(c)
			accepted := regexp.MustCompile(`\[([A-Z_]+)\]`).FindAllString(run(nil, append(slices.Clone(c.Command[1:]), "--help")...)+run(nil, "run", "--help"), -1)
			for i, entry := range env {
				variable, value, _ := strings.Cut(entry, "=")
				known := slices.Contains(accepted, "["+variable+"]") || others.MatchString(variable)
				if secret, is := strings.CutSuffix(variable, "_FILE"); is && !known {
					known = slices.Contains(accepted, "["+secret+"]")
				}
				require.True(t, known, "%s does not know %s", c.Command, variable)
				if strings.HasSuffix(variable, "_FILE") && len(c.VolumeMounts) > 0 {
					require.Contains(t, files, value, "%s is in the secret", variable)
					env[i] = variable + "=" + filepath.Join(dir, path.Base(value))
				}
			}
			if c.Command[1] != "run" {
				return
			}
			printed := run(env, "config") // fails on values that are wrong
			_, port, _ := strings.Cut(setting(t, printed, "STATUS_ADDR"), ":")
			require.Equal(t, port, fmt.Sprint(c.Ports[0].Port))
			for probe, path := range map[*Probe]string{c.Startup: "/livez", c.Liveness: "/livez", c.Readiness: "/readyz"} {
				require.Equal(t, path, probe.HTTPGet.Path)
				require.Equal(t, c.Ports[0].Name, probe.HTTPGet.Port)
			}
			grace, err := time.ParseDuration(setting(t, printed, "SHUTDOWN_GRACE"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Duration(pod.GracePeriodSeconds)*time.Second, grace+5*time.Second, "an orderly stop is not cut short")
			start, err := time.ParseDuration(setting(t, printed, "START_TIMEOUT"))
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Duration(c.Startup.PeriodSeconds*c.Startup.FailureThreshold)*time.Second, 2*start, "a start is not cut short")
		})
	}
}

// TestPodsAreChosen holds selectors against the labels of the pods they mean.
func TestPodsAreChosen(t *testing.T) {
	set := load(t)
	for name, deployment := range set.Find("Deployment") {
		labels := deployment.Spec.Template.Metadata.Labels
		require.Equal(t, labels, deployment.Spec.Selector.MatchLabels, name)
		budget, found := set.Find("PodDisruptionBudget")[name]
		require.True(t, found, name)
		require.Equal(t, labels, budget.Spec.Selector.MatchLabels, name)
		require.Greater(t, deployment.Spec.Replicas, *budget.Spec.MaxUnavailable, "%s: an eviction leaves somebody", name)
		c := deployment.Spec.Template.Spec.Containers[0]
		require.True(t, deployment.Spec.Template.Spec.SecurityContext.RunAsNonRoot, name)
		require.True(t, c.SecurityContext.ReadOnlyRoot, name)
		for _, entry := range set.Env(c) {
			require.NotContains(t, entry, "KAFKA_INSTANCE_ID=", "pods of a Deployment have no name that stays")
		}
	}
	for _, scaler := range set.Find("HorizontalPodAutoscaler") {
		require.Contains(t, set.Find("Deployment"), scaler.Spec.ScaleTargetRef.Name)
		require.Contains(t, scaler.Spec.Metrics[0].External.Metric.Name, "datadogmetric@"+set.Kustomization.Namespace+":")
		_, metric, _ := strings.Cut(scaler.Spec.Metrics[0].External.Metric.Name, ":")
		require.Contains(t, set.Find("DatadogMetric"), metric)
		require.Contains(t, set.Find("DatadogMetric")[metric].Spec.Query, "quiesce.bridge.oldest_uncommitted_seconds{")
	}
}
