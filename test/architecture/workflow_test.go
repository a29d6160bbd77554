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

// TestWorkflows: a workflow calls the Makefile, which developers have too, and nothing else. "make lint" looks at its syntax.
func TestWorkflows(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflows (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { checkWorkflow(t, makefile, file) })
	}
}

func checkWorkflow(t *testing.T, makefile []byte, file string) {
	t.Helper()
	var workflow struct {
		Permissions map[string]string `json:"permissions"`
		Jobs        map[string]struct {
			Timeout int `json:"timeout-minutes"`
			Steps   []struct{ Uses, Run string }
		} `json:"jobs"`
	}
	readYAML(t, file, &workflow)
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

// TestForge: what a forge and an editor read can be read.
func TestForge(t *testing.T) {
	forms, err := filepath.Glob(filepath.Join(root, ".github", "ISSUE_TEMPLATE", "*"))
	if err != nil || len(forms) == 0 {
		t.Fatalf("there are no forms for issues (%v)", err)
	}
	for _, file := range forms {
		if filepath.Base(file) == "config.yml" {
			continue
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type       string
				ID         string
				Attributes struct{ Label string }
			}
		}
		readYAML(t, file, &form)
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s: the forge shows no form without name, description and body", file)
		}
		for _, field := range form.Body {
			if field.Type != "textarea" && field.Type != "input" || field.ID == "" || field.Attributes.Label == "" {
				t.Errorf("%s: the forge does not know the field %+v", file, field)
			}
		}
	}
	var container struct{ Image, PostCreateCommand string }
	readYAML(t, filepath.Join(root, ".devcontainer", "devcontainer.json"), &container)
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	want := "golang:" + string(version[1]) + "-bookworm"
	if container.Image != want || !strings.HasPrefix(container.PostCreateCommand, "make ") {
		t.Errorf("the container to develop in is %+v: want %s, and a target of the Makefile", container, want)
	}
	var ci struct {
		Jobs map[string]struct{ Container string }
	}
	readYAML(t, filepath.Join(root, ".github", "workflows", "ci.yaml"), &ci)
	for name, job := range ci.Jobs {
		if job.Container != want {
			t.Errorf("job %s of ci.yaml runs in %s, want %s", name, job.Container, want)
		}
	}
}

func readYAML(t *testing.T, file string, target any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, target); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}
