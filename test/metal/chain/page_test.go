// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// A page runs the commands of docs/install.md, with another name for the tenant.
type page struct {
	// blocks are the commands of each section, by its title.
	blocks map[string][]string
	// dir is where the commands are run, with the charts and the kubeconfig files that the page speaks of.
	dir, bin, kubeconfig string
	// names replaces the example names of the page.
	names *strings.Replacer
}

func (w *fixture) openPage(t *testing.T) *page {
	t.Helper()
	repository := filepath.Dir(w.bin)
	content, err := os.ReadFile(filepath.Join(repository, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{
		blocks: map[string][]string{}, dir: filepath.Join(w.dir, "page"), bin: w.bin, kubeconfig: w.Kubeconfig,
		names: strings.NewReplacer(
			"https://acme.example.com:6443", w.tenant.REST.Host, "acme.example.com:6443", strings.TrimPrefix(w.tenant.REST.Host, "https://"),
			"acme", stack.MachinesNamespace,
			// The page waits for the Deployments after each installation. Installing with --wait must work too.
			"helm install", "helm install --wait --timeout=3m",
		),
	}
	title, block := "", ""
	inBlock := false
	for line := range strings.Lines(string(content)) {
		switch {
		case strings.HasPrefix(line, "## "):
			title = strings.TrimSpace(strings.TrimPrefix(line, "## "))
		case strings.HasPrefix(line, "```console"):
			inBlock, block = true, ""
		case strings.HasPrefix(line, "```") && inBlock:
			p.blocks[title], inBlock = append(p.blocks[title], block), false
		case inBlock:
			block += line
		}
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"charts": filepath.Join(repository, "charts"), p.names.Replace("acme-admin.kubeconfig"): w.tenant.Kubeconfig,
	} {
		if err := os.Symlink(target, filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// follow runs the command blocks of a section, with replacements. The section must have the given number of blocks.
func (p *page) follow(t *testing.T, title string, blocks int, replacements ...string) string {
	t.Helper()
	found := p.blocks[title]
	if len(found) != blocks {
		t.Fatalf("docs/install.md has %d blocks of commands in section %q, want %d", len(found), title, blocks)
	}
	output := ""
	for _, block := range found {
		output += p.run(t, strings.NewReplacer(replacements...).Replace(p.names.Replace(block)))
	}
	return output
}

// run runs commands in a shell, and ends the test if one fails.
func (p *page) run(t *testing.T, commands string) string {
	t.Helper()
	output, err := p.try(t, commands)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, output)
	}
	return output
}

func (p *page) try(t *testing.T, commands string) (string, error) {
	t.Helper()
	command := exec.Command("bash", "-euo", "pipefail", "-c", commands)
	command.Dir = p.dir
	home := filepath.Join(p.dir, "home")
	command.Env = []string{
		"PATH=" + p.bin + ":/usr/bin:/bin", "KUBECONFIG=" + p.kubeconfig,
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	output, err := command.CombinedOutput()
	return string(output), err
}

// uninstallInUse uninstalls the charts while a server is in use, and installs them again with the page's commands.
func (p *page) uninstallInUse(t *testing.T) {
	t.Helper()
	p.run(t, p.names.Replace("helm uninstall acme --namespace acme --wait; helm uninstall karpenter-metal3 --namespace karpenter-metal3 "+
		"--wait"))
	p.run(t, p.names.Replace(p.blocks["1. The management cluster"][0]))
	p.run(t, p.names.Replace("helm install acme charts/karpenter-metal3-tenant --namespace acme"))
}
