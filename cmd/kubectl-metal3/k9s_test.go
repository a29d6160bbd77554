// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// k9sPlugin is a plugin in the file of k9s, with the fields that we use.
type k9sPlugin struct {
	ShortCut    string   `json:"shortCut"`
	Description string   `json:"description"`
	Confirm     bool     `json:"confirm"`
	Dangerous   bool     `json:"dangerous"`
	Scopes      []string `json:"scopes"`
	Command     string   `json:"command"`
	Args        []string `json:"args"`
}

// TestK9s runs what contrib/k9s has k9s run, for an object of each kind. What writes is confirmed, and is not there in read-only mode.
func TestK9s(t *testing.T) {
	content, err := os.ReadFile("../../contrib/k9s/plugins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Plugins map[string]k9sPlugin `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	selected := map[string][2]string{"baremetalhosts": {"metal3-system", "server-07"}, "machines": {"acme", "default-x7f2k"},
		"nodetypes": {"", "h100-8x"}, "pods": {"default", "training-0"}, "nodeclaims": {"", "default-x7f2k"}}
	keys := map[string]string{}
	for name, plugin := range file.Plugins {
		if len(plugin.Scopes) != 1 || len(plugin.Args) < 5 || plugin.Description == "" || plugin.Command != "sh" || plugin.Args[2] != "sh" {
			t.Errorf("%s is %+v", name, plugin)
			continue
		}
		if other, taken := keys[plugin.Scopes[0]+plugin.ShortCut]; taken {
			t.Errorf("%s and %s have the key %s", name, other, plugin.ShortCut)
		}
		keys[plugin.Scopes[0]+plugin.ShortCut] = name
		object, known := selected[plugin.Scopes[0]]
		if !known {
			t.Errorf("%s is for %s, of which no object is known", name, plugin.Scopes[0])
		}
		arguments := slices.Clone(plugin.Args[3:])
		for i := range arguments {
			arguments[i] = strings.NewReplacer("$NAMESPACE", object[0], "$NAME", object[1], "$CONTEXT", "admin").Replace(arguments[i])
		}
		if writes := verbs[arguments[0]]; writes != plugin.Confirm || writes != plugin.Dangerous {
			t.Errorf("%s writes: %t, is confirmed: %t, is not there in read-only mode: %t", name, writes, plugin.Confirm, plugin.Dangerous)
		} else if writes {
			if out, err := write(t, cluster(interceptor.Funcs{}), "", arguments...); err != nil {
				t.Errorf("%s: %v, and says %q", name, err, out)
			}
		} else if out, problems, code := execute(t, arguments...); code == exitError || out == "" {
			t.Errorf("%s: exit code %d, says %q, %s", name, code, out, problems)
		}
	}
	if len(keys) < 8 {
		t.Errorf("there are only %d plugins", len(keys))
	}
}
