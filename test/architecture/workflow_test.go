// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflow: a workflow calls the Makefile, which developers have too, and nothing else. "make lint" looks at its syntax.
func TestWorkflow(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "examples", "ci", "e2e-kind.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Permissions map[string]string `json:"permissions"`
		Jobs        map[string]struct {
			Timeout int `json:"timeout-minutes"`
			Steps   []struct{ Uses, Run string }
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal(content, &workflow); err != nil {
		t.Fatal(err)
	}
	if len(workflow.Permissions) != 1 || workflow.Permissions["contents"] != "read" {
		t.Errorf("it has the permissions %v, and needs to read the repository", workflow.Permissions)
	}
	runs := 0
	for name, job := range workflow.Jobs {
		if job.Timeout == 0 {
			t.Errorf("job %s may hang for six hours: set timeout-minutes", name)
		}
		for _, step := range job.Steps {
			if step.Uses != "" {
				if !regexp.MustCompile(`^actions/[a-z-]+@v[0-9.]+$`).MatchString(step.Uses) {
					t.Errorf("job %s uses %s: name one of the forge's own actions and its tag", name, step.Uses)
				}
				continue
			}
			runs++
			target, isMake := strings.CutPrefix(strings.TrimSpace(step.Run), "make ")
			if !isMake || !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(target)+`:`).Match(makefile) {
				t.Errorf("job %s runs %q, which is no target of the Makefile", name, step.Run)
			}
		}
	}
	if runs == 0 {
		t.Error("it runs nothing")
	}
}
