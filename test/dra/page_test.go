// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// TestPage runs docs/dra.md: YAML blocks are files, named in their first line; console blocks are commands, each
// followed by its output. A command that reads is run until it prints that output; one that writes, once.
func TestPage(t *testing.T) {
	system.Only(t)
	w := sharedEnvironment(t)
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", "dra.md"))
	if err != nil {
		t.Fatal(err)
	}
	removeTenantClusters(t, w)
	dir := t.TempDir()
	shell := newShell(t, w, dir)
	commands := 0
	for _, block := range page.Blocks(string(content)) {
		switch block.Language {
		case "yaml":
			name, ok := strings.CutPrefix(block.Lines[0], "# ")
			if !ok {
				t.Fatalf("a YAML block does not begin with the name of its file: %s", block.Lines[0])
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(block.Text()), 0o600); err != nil {
				t.Fatal(err)
			}
		case "console":
			for _, step := range steps(t, block.Lines) {
				shell.run(t, step)
				commands++
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands: the test does not parse the page", commands)
	}
}

// removeTenantClusters removes what other tests have left of the TenantClusters that the page makes.
func removeTenantClusters(t *testing.T, w *environment.Environment) {
	t.Helper()
	for _, name := range []string{research, inference} {
		cluster := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		poll.Eventually(t, "there is no TenantCluster "+name, func(ctx context.Context) error {
			if err := w.Host.Client.Delete(ctx, cluster); !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleting it, %v", err)
			}
			return nil
		})
	}
}

// step is a command and its output.
type step struct {
	command string
	output  []string
}

func steps(t *testing.T, lines []string) []step {
	t.Helper()
	var all []step
	for _, line := range lines {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, step{command: command})
			continue
		}
		if len(all) == 0 {
			t.Fatalf("output without a command: %s", line)
		}
		all[len(all)-1].output = append(all[len(all)-1].output, line)
	}
	return all
}

// shell runs the commands of the page.
type shell struct {
	dir, kubectl, kubeconfig string
}

// newShell writes a kubeconfig file with a context for each cluster, of the same name.
func newShell(t *testing.T, w *environment.Environment, dir string) *shell {
	t.Helper()
	kubectl, err := binaries.Find("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	merged := clientcmdapi.NewConfig()
	for name, path := range map[string]string{
		"host": w.Host.Kubeconfig, research: w.Tenant(research).Kubeconfig, inference: w.Tenant(inference).Kubeconfig,
	} {
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		current := config.Contexts[config.CurrentContext]
		merged.Clusters[name], merged.AuthInfos[name] = config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
		merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	s := &shell{dir: dir, kubectl: kubectl, kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := clientcmd.WriteToFile(*merged, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shell) run(t *testing.T, step step) {
	t.Helper()
	arguments := strings.Fields(strings.ReplaceAll(step.command, "'", "")) // a shell would take them away
	if arguments[0] != "kubectl" {
		t.Fatalf("not a command of kubectl: %s", step.command)
	}
	var last error
	check := func(ctx context.Context) error {
		command := exec.CommandContext(ctx, s.kubectl, arguments[1:]...)
		command.Dir, command.Env = s.dir, append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
		var stderr bytes.Buffer
		command.Stderr = &stderr
		output, err := command.Output()
		if ctx.Err() != nil && last != nil {
			return last // the error of a timeout is less useful than the last output
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr.String())
		}
		if got := strings.TrimSpace(string(output)); !matches(strings.Split(got, "\n"), step.output) {
			last = fmt.Errorf("it prints\n%s\nwant\n%s", got, strings.Join(step.output, "\n"))
			return last
		}
		return nil
	}
	if slices.Contains(arguments, "get") {
		poll.Eventually(t, "it prints the output of the page: "+step.command, check)
		return
	}
	if err := check(t.Context()); err != nil {
		t.Fatal(errors.Join(errors.New(step.command), err))
	}
}

// matches compares words, line by line. A * in what is wanted stands for any word.
func matches(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0 || got[0] == ""
	}
	return slices.EqualFunc(got, want, func(got, want string) bool {
		return slices.EqualFunc(strings.Fields(got), strings.Fields(want), func(got, want string) bool { return want == "*" || got == want })
	})
}
