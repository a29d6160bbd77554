// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package karpenter

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/awslabs/operatorpkg/controller"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
)

// TestREADMEListsAllChanges compares the table with what Install uses of the packages beside it.
func TestREADMEListsAllChanges(t *testing.T) {
	var listed []string
	for line := range strings.Lines(read(t, "README.md")) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			t.Errorf("not four cells with text: %s", line)
		}
		listed = append(listed, strings.Trim(strings.TrimSpace(cells[0]), "`"))
	}
	used := regexp.MustCompile(`\b(?:accelerators|holdback|nodeprofiles|resourceclaims|rollout|staticpools|timelimits|workers|writes)\.[A-Z]\w*\(|c\.gangs\.(?:PendingPods|Mark)|lifecycle\.LaunchTimeout|instancetypes\.[A-Z]\w+|nodeprofiles\.StoredHash|writes\.Finalizer`).
		FindAllString(read(t, "install.go"), -1)
	for i := range used {
		used[i] = strings.TrimSuffix(used[i], "(")
	}
	slices.Sort(listed)
	slices.Sort(used)
	if diff := cmp.Diff(slices.Compact(used), listed); diff != "" {
		t.Errorf("README.md does not list the changes of install.go (-code +README.md):\n%s", diff)
	}
	folders, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if folder.IsDir() && !strings.Contains(strings.ToLower(read(t, "README.md")), folder.Name()) {
			t.Errorf("README.md does not mention %s", folder.Name())
		}
	}
}

// TestReplace: a version of core without a controller is an error, and not a provider that lacks a change.
func TestReplace(t *testing.T) {
	queue := &disruption.Queue{}
	all := []controller.Controller{queue}
	if err := replace(all, func(core *disruption.Queue) controller.Controller { return &lifecycle.Controller{} }); err != nil {
		t.Fatal(err)
	}
	if _, is := all[0].(*lifecycle.Controller); !is {
		t.Errorf("the controller is a %T", all[0])
	}
	if err := replace(all, func(core *disruption.Queue) controller.Controller { return core }); err == nil {
		t.Error("want an error without the controller")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
