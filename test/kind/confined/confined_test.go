// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package confined

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// left is the name of what the tests leave on the machine.
const left = "kind-left"

// environment is a running command in an environment.
type environment struct {
	t       *testing.T
	command *exec.Cmd
	// checkout is the absolute path of the repository.
	checkout string
	errors   bytes.Buffer
	// end makes a command that reads its input end.
	end func() error
}

// start runs a script in an environment, and returns once the script has printed the line "up". Its input is a pipe.
func start(t *testing.T, script string) *environment {
	t.Helper()
	if os.Getenv("E2E_KIND") != "1" {
		t.Skip("a confined environment needs root, and what takes minutes to make: E2E_KIND=1 go test ./test/kind/confined")
	}
	checkout, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	w := &environment{t: t, command: exec.Command("./run", "bash", "-c", script), checkout: checkout}
	w.command.Stderr = &w.errors
	input, err := w.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.end = input.Close
	output, err := w.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == "up" {
			return w
		}
		t.Log(lines.Text())
	}
	t.Fatalf("the environment ended before it was up, %v\n%s", w.command.Wait(), &w.errors)
	return nil
}

// wait returns the exit status of the wrapper, once the environment is gone.
func (w *environment) wait() int {
	w.t.Helper()
	err := w.command.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return w.command.ProcessState.ExitCode()
}

// do runs a command on the machine.
func do(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s, %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return string(output)
}

// TestLeftIsNamed leaves one of each kind on the machine, as an environment would if it were not closed.
func TestLeftIsNamed(t *testing.T) {
	w := start(t, "docker network create "+left+"; echo up; read -r")
	do(t, "ip", "link", "add", left, "type", "bridge")
	defer do(t, "ip", "link", "delete", left)

	libraries := filepath.Join(w.checkout, "bin/kind-confined/root/usr/lib/x86_64-linux-gnu")
	nft := []string{"LD_LIBRARY_PATH=" + libraries, filepath.Join(w.checkout, "bin/kind-confined/root/usr/sbin/nft")}
	do(t, "env", append(nft, "add", "table", "inet", left)...)
	defer do(t, "env", append(nft, "delete", "table", "inet", left)...)

	mount := filepath.Join(t.TempDir(), left)
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	do(t, "mount", "-t", "tmpfs", "tmpfs", mount)
	defer do(t, "umount", mount)

	hierarchy := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.controllers")); err != nil {
		hierarchy = filepath.Join(hierarchy, "memory")
	}
	group := filepath.Join(hierarchy, left)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	defer do(t, "rmdir", group)

	// What links that are made from now on take over, and nothing else.
	const setting = "/proc/sys/net/ipv4/conf/default/medium_id"
	before, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setting, []byte("17"), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(setting, before, 0o644); err != nil {
			t.Error(err)
		}
	}()

	process := exec.Command("sleep", "infinity")
	process.Env = append(os.Environ(), "KIND_CONFINED="+filepath.Join(w.checkout, ".kind/confined"))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait() // it was killed
	}()

	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	if status := w.wait(); status != 1 {
		t.Errorf("status is %d, want 1", status)
	}
	for kind, name := range map[string]string{
		"link": left, "rule": "table inet " + left, "mount": mount, "control group": group, "setting": setting, "process": "sleep infinity",
	} {
		named := false
		for line := range strings.Lines(w.errors.String()) {
			named = named || strings.HasPrefix(line, "error: the environment has left a "+kind+": ") && strings.Contains(line, name)
		}
		if !named {
			t.Errorf("the %s %q is not named in:\n%s", kind, name, &w.errors)
		}
	}
}

func TestStatus(t *testing.T) {
	w := start(t, "echo up; read -r; exit 7")
	// While the environment runs, another command of this checkout runs in it.
	if output, err := exec.Command("./run", "bash", "-c", "docker version >/dev/null && echo $KIND_IMAGE").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(output), "metal3.test/node:") {
		t.Errorf("a second command, %v:\n%s", err, output)
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	if status := w.wait(); status != 7 {
		t.Errorf("status is %d, want that of the command, 7\n%s", status, &w.errors)
	}
	w.checkGone()
}

func TestInterrupted(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sent.String(), func(t *testing.T) {
			w := start(t, "setsid sleep infinity & docker network create "+left+" >/dev/null; echo up; sleep infinity")
			if err := w.command.Process.Signal(sent); err != nil {
				t.Fatal(err)
			}
			if status := w.wait(); status != 128+int(sent) {
				t.Errorf("status is %d, want %d\n%s", status, 128+int(sent), &w.errors)
			}
			w.checkGone()
		})
	}
}

// checkGone fails the test if a process or a control group of the environment is left, or if the next environment has its network.
func (w *environment) checkGone() {
	w.t.Helper()
	if strings.Contains(w.errors.String(), "the environment has left a process") {
		w.t.Error(&w.errors)
	}
	next := start(w.t, "docker network ls; echo up; [[ -z $(docker network ls --quiet --filter name="+left+") ]]")
	if status := next.wait(); status != 0 {
		w.t.Errorf("the next environment has the network of the last one, or there is something left of it:\n%s", &next.errors)
	}
}
