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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// pages run in this order, each on the state that the previous one left.
var pages = []string{"docs/first-server.md", "docs/pinning.md", "docs/operations.md", "docs/install.md"}

// testedElsewhere are the pages with commands that are not run here, with the reason.
var testedElsewhere = map[string]string{
	"README.md":                          "CI runs its make targets",
	"CONTRIBUTING.md":                    "it is about building and testing: CI does that",
	"docs/README.md":                     "it starts the sandbox that the pages are run on here",
	"docs/testing.md":                    "it is about running the tests",
	"docs/upgrade.md":                    "TestUpgrade of test/upgrade goes through it",
	"docs/backup.md":                     "TestBackup runs it",
	"docs/sizes.md":                      "TestSecondManagementCluster runs it",
	"docs/network.md":                    "it is for an endpoint elsewhere: TestServers of test/metal moves servers by one",
	"docs/dra.md":                        "test/dra runs every line of it",
	"docs/kueue.md":                      "test/kueue runs every line of it",
	"docs/migration.md":                  "TestAServerJoinsAVCluster of test/metal runs it",
	"docs/kubectl-plugin.md":             "cmd/kubectl-metal3 compares the page with what the command prints",
	"docs/usage.md":                      "cmd/kubectl-metal3 compares the page with what the command prints",
	"docs/screen.md":                     "TestUI of cmd/kubectl-metal3 runs it",
	"docs/neighbours.md":                 "TestMove of test/neighbours runs it",
	"docs/release.md":                    "test/release makes a release, pushes it and installs from there",
	"docs/webhooks.md":                   "test/webhooks runs it, and keeps what kubectl prints in testdata",
	"docs/conformance.md":                "it is about Karpenter's suite, which make upstream-e2e runs",
	"docs/finite-hardware/drift.md":      "TestDrift of test/e2e goes through it",
	"docs/finite-hardware/scale-down.md": "TestGiveBack of test/e2e goes through it",
	"docs/finite-hardware/packing.md":    "TestPacking of test/e2e goes through it",
}

// TestPages runs the commands of the pages.
func TestPages(t *testing.T) {
	system.Only(t)
	s := newShell(t)
	for _, page := range pages {
		ran := t.Run(filepath.Base(page), func(t *testing.T) {
			if page == "docs/install.md" {
				s.deleteFailedServer(t)
			}
			commands := 0
			for _, block := range blocks(t, page) {
				placement := fmt.Sprintf("%s:%d", page, block.Line)
				switch {
				case block.NotRun != "":
					t.Logf("%s: not run: %s", placement, block.NotRun)
				case block.Language == "yaml":
					if name, ok := strings.CutPrefix(block.Lines[0], "# "); ok && strings.HasSuffix(name, ".yaml") {
						s.write(t, name, block.Text())
					}
				case block.HasCommands():
					all, err := steps(block)
					if err != nil {
						t.Fatalf("%s: %v", placement, err)
					}
					for _, step := range all {
						s.run(t, placement, step)
						commands++
					}
				}
			}
			if commands < 5 {
				t.Errorf("%d commands: the test does not parse the page", commands)
			}
		})
		if !ran {
			return // the next steps depend on it
		}
	}
}

// TestEveryCommand finds pages whose commands no test runs.
func TestEveryCommand(t *testing.T) {
	for _, page := range allPages(t) {
		if strings.HasPrefix(page, "test/") {
			continue // the README of a test tool is covered by the tool's own tests
		}
		for _, block := range blocks(t, page) {
			if !block.HasCommands() {
				continue
			}
			reason, known := testedElsewhere[page]
			switch {
			case known:
				t.Logf("%s:%d: not run here: %s", page, block.Line, reason)
			case !contains(pages, page) && block.NotRun == "":
				t.Errorf("%s:%d: a block of commands on a page that no test runs", page, block.Line)
			}
		}
	}
}

func contains(pages []string, page string) bool {
	for _, known := range pages {
		if known == page {
			return true
		}
	}
	return false
}

// shell runs a reader's commands in a folder with the repository's charts, with the two clusters of a sandbox.
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
		Dir: filepath.Join(t.TempDir(), "sandbox"), Binaries: cluster.Binaries{bin}, Fleet: servers, Tenant: "acme",
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
	// The sandbox has the CRDs already. The chart's webhook has no pods here, so the sandbox's own webhook answers.
	wrapper := "#!/bin/sh\ncase \"$*\" in\n*\"install karpenter-metal3 charts/karpenter-metal3 \"*) set -- \"$@\" --take-ownership --set " +
		"webhook.enabled=false ;;\n" +
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

// unregister deletes the servers, because the pages register them.
func (s *shell) unregister(t *testing.T) {
	t.Helper()
	if err := s.hosts.DeleteAllOf(t.Context(), &metal3v1alpha1.BareMetalHost{}, client.InNamespace(sandbox.HostNamespace)); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the servers are unregistered", func(ctx context.Context) error {
		hosts := &metal3v1alpha1.BareMetalHostList{}
		if err := s.hosts.List(ctx, hosts); err != nil || len(hosts.Items) == 0 {
			return err
		}
		return fmt.Errorf("%d are left", len(hosts.Items))
	})
}

// deleteFailedServer deletes the server that docs/operations.md leaves in error. Metal3's demo mode would take minutes
// to remove the finalizer.
func (s *shell) deleteFailedServer(t *testing.T) {
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

// inspected is the hardware of the servers of fleet.yaml. In demo mode Metal3 reports the same small machine for all,
// which is too small for any type.
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

// reads matches commands that change nothing. They are repeated until they print the output of the page.
var reads = regexp.MustCompile(`\b(kubectl|\$k)\b.* (get|describe|wait|explain) `)

var assignment = regexp.MustCompile(`^\w+=`)

func (s *shell) run(t *testing.T, placement string, step step) {
	t.Helper()
	var last error
	check := func(ctx context.Context) error {
		// Variables are kept for the next commands.
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
			return last // the output of a command that timed out is not useful
		}
		printed := strings.Trim(output.String(), "\n")
		if err != nil && !step.shown {
			last = fmt.Errorf("%w:\n%s", err, printed)
			return last
		}
		var lines []string
		for line := range strings.Lines(printed) {
			// Warnings about objects that are created together depend on timing.
			if line = strings.TrimRight(line, "\n"); printed != "" && !strings.HasPrefix(line, "Warning: ") {
				lines = append(lines, line)
			}
		}
		if step.shown && !matches(lines, step.output) {
			last = fmt.Errorf("it prints\n%s\nwant, as on the page,\n%s", printed, strings.Join(step.output, "\n"))
			return last
		}
		return nil
	}
	start := time.Now()
	defer func() { t.Logf("%s: %.1f s: $ %s", placement, time.Since(start).Seconds(), step.command) }()
	if reads.MatchString(step.command) && !strings.Contains(step.command, "apply") {
		poll.Eventually(t, placement+": "+step.command, check)
		return
	}
	if err := check(t.Context()); err != nil {
		t.Fatalf("%s: $ %s\n%v", placement, step.command, err)
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
