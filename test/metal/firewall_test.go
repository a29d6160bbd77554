// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// counters change by themselves, and are not compared.
var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// firewall returns the machine's rules, of iptables-legacy and iptables-nft. The tools are those of the server image,
// because the machine may have none.
func firewall() []string {
	var rules []string
	for _, program := range []string{"xtables-legacy-multi", "xtables-nft-multi"} {
		for _, save := range []string{"iptables-save", "ip6tables-save"} {
			output, err := iptables(program, save)
			if err != nil { // a kernel without nftables prints a warning, and has no such rules
				output = err.Error()
			}
			for line := range strings.Lines(output) {
				if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
					rules = append(rules, fmt.Sprintf("%s of %s: %s", save, program, counters.ReplaceAllString(line, "")))
				}
			}
		}
	}
	return rules
}

// iptables runs a tool from the disk of servers, with the libraries that are there.
func iptables(program string, arguments ...string) (string, error) {
	rootfs := filepath.Join(bin, "server-image", "rootfs")
	libraries := filepath.Join(rootfs, "usr/lib/x86_64-linux-gnu")
	command := exec.Command(filepath.Join(rootfs, "lib64/ld-linux-x86-64.so.2"),
		append([]string{"--library-path", libraries, filepath.Join(rootfs, "usr/sbin", program)}, arguments...)...)
	command.Env = append(os.Environ(), "XTABLES_LIBDIR="+filepath.Join(libraries, "xtables"))
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s, %w: %s", program, strings.Join(arguments, " "), err, output)
	}
	return string(output), nil
}

// A check that finds no rules would always pass.
func TestFirewallRules(t *testing.T) {
	if os.Getenv(enabled) == "" {
		t.Skip("it needs the disk of a server, which `make e2e-metal` makes, and root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread has a network namespace of its own from here on. It ends with this goroutine, because it is never
		// unlocked.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("making a network of its own, %v", err)
			return
		}
		for _, program := range []string{"xtables-legacy-multi", "xtables-nft-multi"} {
			if output, err := iptables(program, "iptables", "-A", "INPUT", "-p", "udp", "-j", "DROP"); err != nil {
				t.Logf("this kernel does not support such rules: %v: %s", err, output)
				continue
			}
			rules := firewall()
			want := fmt.Sprintf("iptables-save of %s: -A INPUT -p udp -j DROP", program)
			if !strings.Contains(strings.Join(rules, "\n"), want) {
				t.Errorf("a rule that %s made is not among\n%s", program, strings.Join(rules, "\n"))
			}
		}
	}()
	<-done
}
