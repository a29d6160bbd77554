// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestKeyReachesTheSignerAlone runs each target of the Makefile with a shell that runs nothing, and writes down what it was to run and with
// which key: no command has it, but the script that signs, and what that runs has it neither, but the signer.
func TestKeyReachesTheSignerAlone(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	shell, log := filepath.Join(scratch, "shell"), filepath.Join(scratch, "log")
	write(t, shell, []byte("#!/bin/sh\necho \"${COSIGN_KEY}${COSIGN_PASSWORD}: $2 $3\" >>"+log+"\n"))
	commands := func(target string) (all []string) {
		command := exec.CommandContext(t.Context(), "make", "SHELL="+shell, target)
		command.Dir = repository(t)
		command.Env = append(os.Environ(), "MAKEFLAGS=", "COSIGN_KEY=secret", "COSIGN_PASSWORD=$secret")
		_ = command.Run() // most do not succeed without their commands
		content, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(log); err != nil {
			t.Fatal(err)
		}
		return slices.Collect(strings.Lines(string(content)))
	}
	targets := regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(string(makefile), -1)
	if len(targets) < 20 {
		t.Fatalf("the Makefile has %d targets with a description", len(targets))
	}
	for _, target := range targets {
		got := commands(target[1])
		if target[1] != "release-sign" && len(got) > 0 {
			t.Errorf("make %s runs with the key, want that it refuses: %q", target[1], got)
		}
		if target[1] == "release-sign" && (len(got) != 1 || !strings.HasPrefix(got[0], "secret$secret: hack/release-sign.sh ")) {
			t.Errorf("make release-sign runs %q, want the script alone", got)
		}
	}

	// The script, with a compiler that writes down the same, and builds a signer that does.
	write(t, filepath.Join(scratch, "go"), []byte("#!/bin/sh\necho \"${COSIGN_KEY}${COSIGN_PASSWORD}: go $*\" >>"+log+`
case "$3" in
build) cp "`+shell+`" "$5" ;;
*) PATH="${PATH#*:}" exec go "$@" ;;
esac
`))
	command := exec.CommandContext(t.Context(), filepath.Join(repository(t), "hack", "release-sign.sh"), "dist")
	command.Env = append(os.Environ(), "PATH="+scratch+":"+os.Getenv("PATH"), "COSIGN_KEY=secret", "COSIGN_PASSWORD=$secret")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	ran := slices.Collect(strings.Lines(string(content)))
	for n, line := range ran {
		if has, signs := strings.HasPrefix(line, "secret$secret: "), n == len(ran)-1; has != signs {
			t.Errorf("the key reaches another program than the signer: %t, %s", has, line)
		}
	}
	if len(ran) < 2 || !strings.Contains(ran[len(ran)-2], "build -o") || !strings.Contains(ran[len(ran)-1], "--from") {
		t.Errorf("it runs %q, want a build and then the signer", ran)
	}
}
