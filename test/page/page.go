// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package page reads pages of the docs and runs their commands, so that what a page says is what is tested.
package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// A Block is a fenced block of a page.
type Block struct {
	// Section is the title of the section that it is in, of the second level.
	Section  string
	Language string
	// Line is where it begins.
	Line  int
	Lines []string
	// NotRun is the reason why it is not run on a sandbox, of the comment before it; empty if it is.
	NotRun string
}

var notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)

// HasCommands returns whether it is for a shell.
func (b Block) HasCommands() bool {
	return slices.Contains([]string{"console", "sh", "bash", "shell"}, b.Language)
}

// Text is its lines in one.
func (b Block) Text() string { return strings.Join(b.Lines, "\n") + "\n" }

// Blocks returns the fenced blocks of a page in Markdown.
func Blocks(content string) []Block {
	var all []Block
	var current *Block
	section, reason, number := "", "", 0
	for line := range strings.SplitSeq(content, "\n") {
		number++
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		title, isTitle := strings.CutPrefix(line, "## ")
		switch {
		case fence && current == nil:
			current = &Block{Section: section, Language: language, Line: number, NotRun: reason}
		case fence:
			all, current, reason = append(all, *current), nil, ""
		case current != nil:
			current.Lines = append(current.Lines, line)
		case notRun.MatchString(line):
			reason = notRun.FindStringSubmatch(line)[1]
		case isTitle:
			section, reason = strings.TrimSpace(title), ""
		case strings.TrimSpace(line) != "":
			reason = ""
		}
	}
	return all
}

// Config says how the commands of a page are run.
type Config struct {
	// File is the page.
	File string
	// Dir is where its commands run. It is made. HOME of the commands is in it.
	Dir string
	// Bin has programs that are used before those in PATH.
	Bin string
	// Kubeconfig is that of commands that name none.
	Kubeconfig string
	// Links are files and folders that the page speaks of: their names in Dir, and what they link to.
	Links map[string]string
	// Names are names of the page, each followed by the one that is used instead.
	Names []string
}

// A Page runs the commands of a page.
type Page struct {
	config Config
	blocks []Block
	names  *strings.Replacer
}

// Open reads a page, and makes what its commands need.
func Open(config Config) (*Page, error) {
	content, err := os.ReadFile(config.File)
	if err != nil {
		return nil, fmt.Errorf("reading a page, %w", err)
	}
	p := &Page{config: config, blocks: Blocks(string(content)), names: strings.NewReplacer(config.Names...)}
	if err := os.MkdirAll(p.home(), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of a page, %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(config.Links)) {
		link := filepath.Join(config.Dir, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("making the folder of a page, %w", err)
		}
		if err := os.Symlink(config.Links[name], link); err != nil {
			return nil, fmt.Errorf("making the folder of a page, %w", err)
		}
	}
	return p, nil
}

// Follow runs the blocks of commands of a section, with replacements in the form of Config.Names, and returns what they
// print. A section that does not have this number of blocks is an error: the page has changed, so the caller must, too.
func (p *Page) Follow(ctx context.Context, section string, blocks int, replacements ...string) (string, error) {
	var found []string
	for _, block := range p.blocks {
		if block.Section == section && block.HasCommands() {
			found = append(found, block.Text())
		}
	}
	if len(found) != blocks {
		return "", fmt.Errorf("%s has %d blocks of commands in section %q, want %d", p.config.File, len(found), section, blocks)
	}
	return p.Run(ctx, strings.NewReplacer(replacements...).Replace(p.names.Replace(strings.Join(found, ""))))
}

// Run runs commands in a shell that ends at the first one that fails. Names are not replaced.
func (p *Page) Run(ctx context.Context, commands string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	command.Dir = p.config.Dir
	// Nothing else of the caller's environment, which may configure kubectl and Helm.
	command.Env = []string{
		"PATH=" + p.config.Bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + p.config.Kubeconfig, "HOME=" + p.home(),
	}
	// The shell's children end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, strings.TrimSpace(commands), output)
	}
	return string(output), err
}

func (p *Page) home() string { return filepath.Join(p.config.Dir, "home") }
