// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/karpenter-provider-metal3/karpenter-provider-metal3/"
	// metal3 are the types of BareMetalHosts.
	metal3 = "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// clients are the packages for access to an API server.
var clients = []string{
	"sigs.k8s.io/controller-runtime/pkg/client",
	"sigs.k8s.io/controller-runtime/pkg/cache",
	"sigs.k8s.io/controller-runtime/pkg/manager",
	"k8s.io/client-go/kubernetes",
	"k8s.io/client-go/rest",
	"net/http",
}

// rule forbids imports to the packages below some folders.
type rule struct {
	reason string
	// from are folders of this module, with all below them.
	from []string
	// except is a folder below them that is exempt.
	except string
	// not are import paths, or folders of this module, with all below them.
	not []string
	// through is true when what the imported packages of this module import counts, too.
	through bool
	// tests is true when the imports of test files count, too.
	tests bool
}

// rules are the forbidden dependencies.
var rules = map[string]rule{
	"PkgWithoutCommands": {
		reason: "kubectl's plugin is a client of the control plane, which does not need it",
		from:   []string{"pkg", "cmd/manager", "cmd/provider", "cmd/webhook"}, not: []string{"cmd"}, through: true,
	},
	"GroundFloor": {
		reason: "what all of pkg stands on does not depend on it",
		from:   []string{"pkg/kube", "pkg/operator"},
		not: []string{"pkg/controllers", "pkg/tenant", "pkg/cloudprovider", "pkg/karpenter", "pkg/inventory", "pkg/webhooks", "pkg/dra",
			"pkg/bootstrap", "pkg/instancetypes", "pkg/preflight"}, through: true,
	},
	"FirstFloor": {
		reason: "values and decisions on them do not depend on their users",
		from:   []string{"pkg/fleet"},
		not: []string{"pkg/bootstrap", "pkg/cloudprovider", "pkg/controllers", "pkg/dra", "pkg/explain", "pkg/instancetypes", "pkg/inventory",
			"pkg/karpenter", "pkg/preflight", "pkg/tenant", "pkg/webhooks"}, through: true,
	},
	"NothingAboveControllers": {
		reason: "controllers are the top floor of pkg: only commands import them, and Karpenter's Install",
		from: []string{"pkg/kube", "pkg/operator", "pkg/fleet", "pkg/inventory", "pkg/tenant", "pkg/instancetypes", "pkg/cloudprovider",
			"pkg/bootstrap", "pkg/preflight", "pkg/webhooks"},
		not: []string{"pkg/controllers"}, through: true,
	},
	"PluginWithoutControllers": {
		reason: "kubectl's plugin asks the decisions that controllers ask, and runs no controller",
		from:   []string{"cmd/kubectl-metal3"}, not: []string{"pkg/controllers"},
	},
	"PkgWithoutTest": {
		reason: "nothing of the product depends on test support",
		from:   []string{"pkg", "cmd"}, except: "cmd/kubectl-metal3/internal/fleettest", not: []string{"test"}, through: true,
	},
	"ManagementWithoutTenant": {
		reason: "the manager cannot see a tenant cluster",
		from:   []string{"pkg/controllers/management", "cmd/manager"},
		not:    []string{"pkg/controllers/tenant", "pkg/tenant", "pkg/karpenter", "pkg/cloudprovider", "pkg/dra"}, through: true, tests: true,
	},
	"TenantWithoutManagement": {
		reason: "the provider has no right to read a BareMetalHost",
		from: []string{"pkg/controllers/tenant", "pkg/tenant", "pkg/karpenter", "pkg/cloudprovider", "pkg/instancetypes", "pkg/dra",
			"cmd/provider"},
		not: []string{"pkg/controllers/management", "pkg/inventory"}, through: true,
	},
	"ProviderWithoutReviews": {
		reason: "there is a provider for each tenant, and what it does not need of the API server's libraries is 2 MB of each",
		from:   []string{"cmd/provider"}, not: []string{"pkg/operator/callers", "sigs.k8s.io/controller-runtime/pkg/metrics/filters"},
		through: true,
	},
	"KarpenterWithoutHosts": {
		reason: "what Karpenter sees is NodeTypes, never a BareMetalHost",
		from:   []string{"pkg/cloudprovider", "pkg/instancetypes"}, not: []string{metal3},
	},
	"WebhookWithoutControllers": {
		reason: "the webhook admits or refuses, it controls nothing",
		from:   []string{"pkg/webhooks", "cmd/webhook"},
		not:    []string{"pkg/controllers/tenant", "pkg/karpenter", "pkg/cloudprovider"}, through: true,
	},
	"PureDecisions": {
		reason: "values and decisions on them are tested without an API server",
		from:   []string{"pkg/fleet", "pkg/inventory"}, except: "pkg/inventory/feed", not: clients,
	},
	"InventoryWithoutKarpenter": {
		reason: "the inventory does not depend on its users",
		from:   []string{"pkg/inventory"}, not: []string{"sigs.k8s.io/karpenter"}, through: true,
	},
	"APIs": {
		reason: "the types can be imported without anything of ours",
		from:   []string{"pkg/apis"}, not: []string{"pkg", "test", "cmd"},
	},
}

// pkg is a package in the output of "go list".
type pkg struct {
	ImportPath, ForTest, Export, Dir, Doc       string
	Imports, TestImports, XTestImports, GoFiles []string
}

func TestImports(t *testing.T) {
	packages := list(t)
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			seen := 0
			for _, p := range packages {
				if !within(p.ImportPath, r.from) || r.except != "" && within(p.ImportPath, []string{r.except}) {
					continue
				}
				seen++
				imports := p.Imports
				if r.tests {
					imports = slices.Concat(imports, p.TestImports, p.XTestImports)
				}
				for _, path := range reach(packages, imports, r.through) {
					if within(path, r.not) && (name != "APIs" || !within(path, r.from)) {
						t.Errorf("%s imports %s: %s", p.ImportPath, path, r.reason)
					}
				}
			}
			if seen == 0 {
				t.Errorf("no package is below %v", r.from)
			}
		})
	}
}

// Without a comment the purpose of a package is unknown.
func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// reach returns the imports and, with through, the imports of the imported packages of this module.
func reach(packages map[string]pkg, imports []string, through bool) []string {
	var reached []string
	seen := map[string]bool{}
	for open := slices.Clone(imports); len(open) > 0; {
		path := open[0]
		open = open[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		reached = append(reached, path)
		if through {
			open = append(open, packages[path].Imports...)
		}
	}
	return reached
}

func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		for _, root := range []string{folder, module + folder} {
			if path == root || strings.HasPrefix(path, root+"/") {
				return true
			}
		}
		return false
	})
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	packages, err := goList("./...")
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// goList returns what go list says of packages, by import path.
func goList(arguments ...string) (map[string]pkg, error) {
	fields := "-json=ImportPath,ForTest,Export,Dir,Doc,Imports,TestImports,XTestImports,GoFiles"
	command := exec.Command("go", append([]string{"list", fields}, arguments...)...)
	command.Dir = root
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list, %w: %s", err, problems.String())
	}
	packages := map[string]pkg{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says, %w", err)
		}
		packages[p.ImportPath] = p
	}
}
