// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommand: a shell that is given the command sees the words, and runs nothing of theirs.
func TestCommand(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, tc := range map[string]struct {
		reason, command string
		want            []string
	}{
		"Name": {"a name is not quoted", Command("kubectl get pods -n %s %s", "acme", "a.b-c"),
			[]string{"get", "pods", "-n", "acme", "a.b-c"}},
		"Part": {"of a word", Command("kubectl annotate x key=%s", "a b"), []string{"annotate", "x", "key=a b"}},
		"More": {"words that are left follow", Command("kubectl label -n %s", "n", "a", "k=v w"),
			[]string{"label", "-n", "n", "a", "k=v w"}},
		"Substitution": {"it would run", Command("kubectl get %s", "$(touch ran)`touch ran`"), []string{"get", "$(touch ran)`touch ran`"}},
		"Quotes":       {"it would end the word", Command("kubectl get %s", "'; touch ran; '"), []string{"get", "'; touch ran; '"}},
		"Operators": {"they would run", Command("kubectl get %s", "a;touch ran&touch ran|touch ran>ran"),
			[]string{"get", "a;touch ran&touch ran|touch ran>ran"}},
		"Lines": {"a terminal would take the first for complete", Command("kubectl get %s", "a\ntouch ran\r\x1b[201~"),
			[]string{"get", "a?touch ran??[201~"}},
		"Option":   {"kubectl would obey it", Command("kubectl get %s %s", "--kubeconfig=x", "-"), []string{"get", "?-kubeconfig=x", "?"}},
		"Empty":    {"the next word would take its place", Command("kubectl get %s %s", "", "x"), []string{"get", "", "x"}},
		"Variable": {"it has secrets", Command("kubectl get %s", "$HOME~*"), []string{"get", "$HOME~*"}},
		"Percent":  {"no verb of ours", Command("kubectl get %s", "%s%d"), []string{"get", "%s%d"}},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := exec.Command("sh", "-c", `kubectl() { for word; do printf '%s\0' "$word"; done; }; `+tc.command).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %s: %v %s", tc.reason, tc.command, err, output)
			}
			if diff := cmp.Diff(tc.want, strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", tc.reason, tc.command, diff)
			}
			if _, err := os.Stat(filepath.Join(".", "ran")); err == nil {
				t.Errorf("%s: the shell ran it: %s", tc.reason, tc.command)
			}
		})
	}
}
