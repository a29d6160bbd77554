// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metal3v1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// pages are run one after the other, each on what the one before has left.
var pages = []string{"docs/first-server.md", "docs/pinning.md", "docs/operations.md", "docs/install.md"}

// elsewhere are the pages with commands that are not run here, and why.
var elsewhere = map[string]string{
	"README.md":                          "CI runs its make targets",
	"CONTRIBUTING.md":                    "it is about building and testing: CI does that",
	"docs/README.md":                     "it starts the sandbox that the pages are run on here",
	"docs/testing.md":                    "it is about running the tests",
	"docs/backup.md":                     "TestBackup loses the cluster where it says so",
	"docs/dra.md":                        "test/dra runs every line of it",
	"docs/webhooks.md":                   "test/webhooks runs it, and keeps what kubectl prints in testdata",
	"docs/conformance.md":                "it is about Karpenter's suite, which make upstream-e2e runs",
	"docs/finite-hardware/drift.md":      "TestDrift of test/e2e goes through it",
	"docs/finite-hardware/scale-down.md": "TestGiveBack of test/e2e goes through it",
	"docs/finite-hardware/packing.md":    "TestPacking of test/e2e goes through it",
}

// TestPages does what the pages say.
func TestPages(t *testing.T) {
	system.Only(t)
	s := newShell(t)
	for _, page := range pages {
		ran := t.Run(filepath.Base(page), func(t *testing.T) {
			if page == "docs/install.md" {
				s.forget(t)
			}
			commands := 0
			for _, block := range blocks(read(t, page)) {
				where := fmt.Sprintf("%s:%d", page, block.line)
				switch {
				case block.notRun != "":
					t.Logf("%s: not run: %s", where, block.notRun)
				case block.language == "yaml":
					if name, ok := strings.CutPrefix(block.lines[0], "# "); ok && strings.HasSuffix(name, ".yaml") {
						s.write(t, name, strings.Join(block.lines, "\n")+"\n")
					}
				case block.commands():
					all, err := steps(block)
					if err != nil {
						t.Fatalf("%s: %v", where, err)
					}
					for _, step := range all {
						s.run(t, where, step)
						commands++
					}
				}
			}
			if commands < 5 {
				t.Errorf("%d commands: the page is not read as it was written", commands)
			}
		})
		if !ran {
			return // what comes next counts on it
		}
	}
}

// TestEveryCommand finds pages whose commands no test runs.
func TestEveryCommand(t *testing.T) {
	for _, page := range allPages(t) {
		if strings.HasPrefix(page, "test/") {
			continue // what a tool for tests can do, the tests beside it run
		}
		for _, block := range blocks(read(t, page)) {
			if !block.commands() {
				continue
			}
			reason, known := elsewhere[page]
			switch {
			case known:
				t.Logf("%s:%d: not run here: %s", page, block.line, reason)
			case !contains(pages, page) && block.notRun == "":
				t.Errorf("%s:%d: a block of commands on a page that is not among those that are run", page, block.line)
			}
		}
	}
}

func contains(pages []string, page string) bool {
	for _, one := range pages {
		if one == page {
			return true
		}
	}
	return false
}

// shell is where a reader types: a folder with the repository's charts in it, and the two clusters of a sandbox.
type shell struct {
	dir   string
	env   []string
	hosts client.Client
}

func newShell(t *testing.T) *shell {
	t.Helper()
	bin, err := filepath.Abs(root("bin"))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := fleet.Load("fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{dir: t.TempDir()}
	box, err := sandbox.Up(t.Context(), sandbox.Config{
		Dir: filepath.Join(t.TempDir(), "sandbox"), Binaries: controlplane.Binaries{bin}, Fleet: servers, Tenant: "acme",
	})
	if err != nil {
		t.Fatalf("starting a sandbox (run `make tools build` first), %v", err)
	}
	t.Cleanup(box.Close)
	s.hosts = connect(t, box)
	s.unregister(t)
	kubeconfigs := box.Kubeconfigs()
	for name, target := range map[string]string{"acme-admin.kubeconfig": kubeconfigs.Tenant, "charts": absolute(t, root("charts"))} {
		if err := os.Symlink(target, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tools := t.TempDir()
	// The sandbox has the definitions already, and no pods that could answer as the webhook: its own does.
	wrapper := "#!/bin/sh\ncase \"$*\" in\n*\"install karpenter-metal3 charts/karpenter-metal3 \"*) set -- \"$@\" --take-ownership --set " +
		"webhook.enabled=false ;;\n" +
		"*\"upgrade karpenter-metal3 charts/karpenter-metal3 \"*) set -- \"$@\" --set webhook.enabled=false ;;\n" +
		"*\"uninstall \"*) ;;\n*\"install \"*) set -- \"$@\" --take-ownership ;;\nesac\nexec '" + bin + "/helm' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "helm"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "KUBECONFIG="+kubeconfigs.Management, "PATH="+tools+":"+bin+":"+os.Getenv("PATH"), "HOME="+s.dir)
	return s
}

func connect(t *testing.T, box *sandbox.Sandbox) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metal3v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(box.ManagementConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unregister takes the servers out of the management cluster, for the pages register them.
func (s *shell) unregister(t *testing.T) {
	t.Helper()
	if err := s.hosts.DeleteAllOf(t.Context(), &metal3v1alpha1.BareMetalHost{}, client.InNamespace(sandbox.HostNamespace)); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the servers are unregistered", func(ctx context.Context) error {
		hosts := &metal3v1alpha1.BareMetalHostList{}
		if err := s.hosts.List(ctx, hosts); err != nil || len(hosts.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d are left", len(hosts.Items))
	})
}

// forget takes the server away that docs/operations.md leaves in error. Metal3's demo mode takes minutes to let go of such a
// host, and there is nothing behind it.
func (s *shell) forget(t *testing.T) {
	t.Helper()
	host := &metal3v1alpha1.BareMetalHost{}
	if err := s.hosts.Get(t.Context(), client.ObjectKey{Namespace: sandbox.HostNamespace, Name: "demo-validation-error"}, host); err != nil {
		t.Fatal(err)
	}
	before := host.DeepCopy()
	host.Finalizers = nil
	if err := s.hosts.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := s.hosts.Delete(t.Context(), host); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	s.run(t, "after docs/operations.md", step{command: "kubectl -n acme wait --for=delete machines.karpenter.metal3.io --all --timeout=1m"})
}

// inspected is what Metal3 would find out about the servers of fleet.yaml. In its demo mode it inspects nothing, and finds the same
// small machine everywhere, which would be too small for any type.
const inspected = `kind: BareMetalHost
metadata:
  annotations: {inspect.metal3.io/hardwaredetails: '` + details + `'}
`

const details = `{"cpu": {"arch": "x86_64", "count": 96}, "ramMebibytes": 786432}`

func (s *shell) write(t *testing.T, name, content string) {
	t.Helper()
	if before, host, ok := strings.Cut(content, "kind: BareMetalHost\nmetadata:\n"); ok {
		content = before + inspected + strings.Replace(host, "spec:\n", "spec:\n  inspectionMode: disabled\n", 1)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reads finds commands that change nothing, and are run again until they print what the page says.
var reads = regexp.MustCompile(`\b(kubectl|\$k)\b.* (get|describe|wait) `)

var assignment = regexp.MustCompile(`^\w+=`)

func (s *shell) run(t *testing.T, where string, step step) {
	t.Helper()
	var last error
	check := func(ctx context.Context) error {
		// What one command sets, the next ones know.
		script := "[ ! -f .variables ] || . ./.variables\n" + step.command
		if assignment.MatchString(step.command) {
			script = "set -a\n" + script + "\ndeclare -px >.variables"
		}
		command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
		command.Dir, command.Env = s.dir, s.env
		var output bytes.Buffer
		command.Stdout, command.Stderr = &output, &output
		err := command.Run()
		if ctx.Err() != nil && last != nil {
			return last // what was printed when the time was up says nothing
		}
		printed := strings.Trim(output.String(), "\n")
		if err != nil && !step.shown {
			last = fmt.Errorf("%w:\n%s", err, printed)
			return last
		}
		var lines []string
		for line := range strings.Lines(printed) {
			// What is created in one go may be warned of or not: it depends on timing.
			if line = strings.TrimRight(line, "\n"); printed != "" && !strings.HasPrefix(line, "Warning: ") {
				lines = append(lines, line)
			}
		}
		if step.shown && !matches(lines, step.output) {
			last = fmt.Errorf("it prints\n%s\nand the page shows\n%s", printed, strings.Join(step.output, "\n"))
			return last
		}
		return nil
	}
	start := time.Now()
	defer func() { t.Logf("%s: %.1f s: $ %s", where, time.Since(start).Seconds(), step.command) }()
	if reads.MatchString(step.command) && !strings.Contains(step.command, "apply") {
		env.Eventually(t, where+": "+step.command, check)
		return
	}
	if err := check(t.Context()); err != nil {
		t.Fatalf("%s: $ %s\n%v", where, step.command, err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
