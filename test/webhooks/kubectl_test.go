// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what kubectl prints into testdata")

// TestKubectl has kubectl apply and delete, as a dry run, what breaks each of the rules and what keeps them, and
// compares what it prints with testdata/NAME.golden. Cases are testdata/NAME.yaml, of which the first line says why;
// a case that deletes holds only the line "# delete KIND/NAME" after that, with "-n NAMESPACE" if it has one.
func TestKubectl(t *testing.T) {
	asked(t)
	config := environment.Kubeconfig(t, "")
	cases, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in testdata (%v)", err)
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			reason, rest, _ := strings.Cut(string(text), "\n")
			arguments := []string{"--kubeconfig", config, "apply", "--dry-run=server", "--validate=strict", "-f", file}
			if target, deletes := strings.CutPrefix(strings.TrimSpace(rest), "# delete "); deletes {
				arguments = append([]string{"--kubeconfig", config, "delete", "--dry-run=server", "--wait=false"}, strings.Fields(target)...)
			}
			output, _ := exec.CommandContext(t.Context(), kubectl(), arguments...).CombinedOutput() // that it fails is in its output
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, output, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v: write it with -update, and read it", err)
			}
			if diff := cmp.Diff(sortedErrors(string(want)), sortedErrors(string(output))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", strings.TrimPrefix(reason, "# "), diff)
			}
		})
	}
}

// kubectl is the path of the program.
func kubectl() string {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return filepath.Join(assets, "kubectl")
	}
	return filepath.Join("..", "..", "bin", "kubectl")
}

// sortedErrors sorts the errors of an object: the API server lists those of its schema in any order.
func sortedErrors(output string) string {
	lines := strings.Split(output, "\n")
	first := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "* ") })
	if first < 0 {
		return output
	}
	last := first
	for last < len(lines) && strings.HasPrefix(lines[last], "* ") {
		last++
	}
	slices.Sort(lines[first:last])
	return strings.Join(lines, "\n")
}
