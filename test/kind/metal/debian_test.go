// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	debian = "ID=debian\nVERSION_ID=\"12\"\n"
	mint   = "ID=linuxmint\nID_LIKE=debian\nVERSION_ID=\"6\"\nDEBIAN_CODENAME=bookworm\n"
	fedora = "ID=fedora\nVERSION_ID=43\n"
)

// hack/in-debian.sh decides where a command runs. No container is started: docker prints its arguments.
func TestInDebian(t *testing.T) {
	const works, refuses, absent = `[ "$1" = version ] || echo "docker $*"`, `echo "Cannot connect to the Docker daemon." >&2; exit 1`, ""
	for name, tc := range map[string]struct {
		reason, release, user, machine, docker string
		want                                   []string // parts of what it prints
		fails                                  bool
	}{
		"Here":     {"root of Debian 12 needs no container", debian, "0", "x86_64", absent, []string{"the command runs"}, false},
		"MadeOfIt": {"others have Debian's packages, too", mint, "0", "x86_64", absent, []string{"the command runs"}, false},
		"Other": {"another system has other packages", fedora, "0", "x86_64", works,
			[]string{"docker run ", "golang:1.2.3-bookworm", "not Debian 12"}, false},
		"OlderOne": {"Debian 11 has another Python", "ID=debian\nVERSION_ID=\"11\"\n", "0", "x86_64", works, []string{"docker run "}, false},
		"NotRoot": {"a container has root", debian, "1000", "x86_64", works,
			[]string{"docker run ", "OWNER=1000:", "you are not root"}, false},
		"NoDocker": {"there is nothing to run it in", fedora, "1000", "x86_64", absent,
			[]string{"install Docker", "not Debian 12"}, true},
		"NoDaemon":   {"docker's own reason is shown", fedora, "0", "x86_64", refuses, []string{"Cannot connect to the Docker daemon."}, true},
		"OtherChips": {"the servers boot nowhere else", fedora, "0", "aarch64", works, []string{"x86-64 only", "Linux on aarch64"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, content string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
				return path
			}
			release := write("os-release", tc.release)
			write("id", "#!/bin/sh\necho "+tc.user)
			write("uname", "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo "+tc.machine)
			write("go", "#!/bin/sh\necho go1.2.3")
			write("command", "#!/bin/sh\necho the command runs")
			if tc.docker != absent {
				write("docker", "#!/bin/sh\n"+tc.docker)
			}
			for _, program := range []string{"bash", "dirname"} {
				path, err := exec.LookPath(program)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(dir, program)); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), "bash", filepath.Join("..", "..", "..", "hack", "in-debian.sh"), "command")
			command.Env = []string{"PATH=" + dir, "OS_RELEASE=" + release}
			output, err := command.CombinedOutput()
			if (err != nil) != tc.fails {
				t.Errorf("%s: it ends with %v:\n%s", tc.reason, err, output)
			}
			for _, part := range tc.want {
				if !strings.Contains(string(output), part) {
					t.Errorf("%s: want %q in\n%s", tc.reason, part, output)
				}
			}
			if tc.fails && (!strings.HasPrefix(string(output), "error: ") || strings.Count(string(output), "\n") != 1) {
				t.Errorf("%s: the error is not one sentence:\n%s", tc.reason, output)
			}
		})
	}
}
