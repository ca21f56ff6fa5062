package compose

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quiesce-io/quiesce/deploy/local/stack"
)

// builder runs a Dockerfile's stages below a directory instead of in
// containers. Its paths are the image's.
type builder struct {
	t      *testing.T
	source string            // the build context
	args   map[string]string // build arguments that are given
	stages map[string]*built
}

type built struct {
	root    string // of the stage's file system
	workdir string
	env     []string
	user    string
	command string
}

func (b *builder) build(stage Stage) *built {
	b.t.Helper()
	s := &built{root: b.t.TempDir(), workdir: "/"}
	if base, ok := b.stages[stage.Base]; ok {
		s.workdir, s.env = base.workdir, base.env
		b.copy(base.root+"/.", s.root)
	}
	for _, step := range stage.Steps {
		words := strings.Fields(step.Rest)
		switch step.Instruction {
		case "WORKDIR":
			s.workdir = step.Rest
			require.NoError(b.t, os.MkdirAll(filepath.Join(s.root, s.workdir), 0o755))
		case "ENV":
			s.env = append(s.env, step.Rest)
		case "ARG":
			name, value, _ := strings.Cut(step.Rest, "=")
			if given, ok := b.args[name]; ok {
				value = given
			}
			s.env = append(s.env, name+"="+value)
		case "USER":
			s.user = step.Rest
		case "CMD":
			s.command = step.Rest
		case "COPY":
			from := b.source
			if name, ok := strings.CutPrefix(words[0], "--from="); ok {
				require.Contains(b.t, b.stages, name, "COPY %s", step.Rest)
				from, words = b.stages[name].root, words[1:]
			}
			to := words[len(words)-1]
			if !path.IsAbs(to) {
				to = path.Join(s.workdir, to) + "/"
			}
			for _, file := range words[:len(words)-1] {
				if strings.HasPrefix(file, "/etc/ssl/") { // the base image's, not ours to build
					continue
				}
				target := filepath.Join(s.root, to)
				require.NoError(b.t, os.MkdirAll(target, 0o755))
				if file = filepath.Join(from, file); isDirectory(file) {
					file += "/."
				}
				b.copy(file, target)
			}
		case "RUN":
			cmd := exec.CommandContext(b.t.Context(), "/bin/sh", "-c", step.Rest)
			cmd.Dir = filepath.Join(s.root, s.workdir)
			cmd.Env = append(os.Environ(), s.env...)
			output, err := cmd.CombinedOutput()
			require.NoError(b.t, err, "RUN %s\n%s", step.Rest, output)
		default:
			b.t.Fatalf("%s %s: the test does not know this instruction", step.Instruction, step.Rest)
		}
	}
	b.stages[stage.Name] = s
	return s
}

func isDirectory(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.IsDir()
}

func (b *builder) copy(from, to string) {
	b.t.Helper()
	output, err := exec.CommandContext(b.t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(b.t, err, "%s", output)
}

// buildContext copies what is under version control, or would be: the image is
// built from a clean clone.
func buildContext(t *testing.T, root string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	require.NoError(t, err)
	dir := t.TempDir()
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted and not committed
			continue
		}
		require.NoError(t, err)
		target := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
		require.NoError(t, os.WriteFile(target, content, 0o644))
	}
	return dir
}

func TestDockerfileBuildsStaticBinaries(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	require.NoError(t, err)
	stages, err := Stages(string(text))
	require.NoError(t, err)
	b := &builder{t: t, source: buildContext(t, root), stages: map[string]*built{},
		args: map[string]string{"VERSION": "v9.8.7", "BUILD_ID": "4f2c"}}
	for _, stage := range stages {
		b.build(stage)
	}

	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(goMod)
	require.Equal(t, fmt.Sprintf("golang:%s-bookworm", version[1]), stages[0].Base, "the image's Go is go.mod's")

	for name, binaries := range map[string][]string{"quiesce": {"bridge", "worker"}, "local": {"quiesce-local"}} {
		image := b.stages[name]
		require.Regexp(t, `^[1-9][0-9]*:[1-9][0-9]*$`, image.user, "%s: not root, and a number, so that an orchestrator can tell", name)
		entries, err := os.ReadDir(filepath.Join(image.root, "usr/local/bin"))
		require.NoError(t, err)
		require.Len(t, entries, len(binaries))
		for _, binary := range binaries {
			file := filepath.Join(image.root, "usr/local/bin", binary)
			requireStatic(t, file)
			require.NoError(t, exec.Command(file, "help").Run(), binary)
		}
		require.Contains(t, image.command, binaries[0])
	}
	for _, binary := range []string{"bridge", "worker"} {
		output, err := exec.Command(filepath.Join(b.stages["quiesce"].root, "usr/local/bin", binary), "version").Output()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%s v9.8.7 (build 4f2c, %s)\n", binary, runtime.Version()), string(output))
	}
}

// requireStatic checks that a binary needs no interpreter and no library: the
// image has none.
func requireStatic(t *testing.T, file string) {
	t.Helper()
	binary, err := elf.Open(file)
	require.NoError(t, err)
	defer binary.Close()
	for _, segment := range binary.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "%s needs an interpreter", file)
	}
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries, file)
}
