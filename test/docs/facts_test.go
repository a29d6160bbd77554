// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/preflight"
)

// TestVersions compares docs/compatibility.md with the versions in the modules.
func TestVersions(t *testing.T) {
	page := read(t, "docs/compatibility.md")
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| ([0-9.]+) \\| [^|]+ \\| `((?:[^`]+/)?go\\.mod)`: `([^`]+)` \\|$")
	told := map[string]bool{}
	for _, found := range row.FindAllStringSubmatch(page, -1) {
		version, file, module := found[1], found[2], found[3]
		told[module] = true
		required := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(read(t, file))
		if required == nil || required[1] != version {
			t.Errorf("docs/compatibility.md says %s %s, and %s says %v", module, version, file, required)
		}
	}
	for _, module := range []string{
		"sigs.k8s.io/karpenter", "k8s.io/client-go", "k8s.io/kubernetes", "go.etcd.io/etcd/server/v3", "helm.sh/helm/v3", "sigs.k8s.io/kwok",
		"github.com/metal3-io/baremetal-operator", "github.com/metal3-io/baremetal-operator/apis", "sigs.k8s.io/kueue",
		"sigs.k8s.io/jobset", "sigs.k8s.io/lws", "github.com/oauth2-proxy/oauth2-proxy/v7",
		"github.com/loft-sh/vcluster", "github.com/containerd/containerd/v2", "github.com/prometheus/prometheus",
	} {
		if !told[module] {
			t.Errorf("docs/compatibility.md does not say which version of %s is tested", module)
		}
	}
	minimum := regexp.MustCompile(`\| Kubernetes, both clusters \| ([0-9.]+) \|`).FindStringSubmatch(page)
	if minimum == nil || minimum[1] != preflight.MinimumKubernetes {
		t.Errorf("docs/compatibility.md requires Kubernetes %v, and the preflight %s", minimum, preflight.MinimumKubernetes)
	}
	newest := 0
	for _, management := range regexp.MustCompile(`(?m)^\| 1\.(\d+)\.\d+ \| 1\.\d+\.\d+ \|`).FindAllStringSubmatch(page, -1) {
		minor, err := strconv.Atoi(management[1])
		if err != nil {
			t.Fatal(err)
		}
		newest = max(newest, minor)
	}
	if got := fmt.Sprint("1.", newest); got != preflight.TestedKubernetes {
		t.Errorf("docs/compatibility.md has management clusters up to Kubernetes %s, and the preflight takes %s for the newest that is tested",
			got, preflight.TestedKubernetes)
	}
	for _, chart := range []string{"karpenter-metal3", "karpenter-metal3-tenant"} {
		if definition := read(t, "charts/"+chart+"/Chart.yaml"); minimum == nil ||
			!strings.Contains(definition, `kubeVersion: ">=`+minimum[1]+`.`) {
			t.Errorf("docs/compatibility.md requires Kubernetes %v, but the chart %s another version", minimum, chart)
		}
	}
}

// TestMessages compares the messages in docs/operations.md with the strings in the code, with … for values.
func TestMessages(t *testing.T) {
	says := messages(t, "pkg/controllers/management/machine", "pkg/controllers/management/hosts", "pkg/inventory", "pkg/fleet/quota")
	_, table, _ := strings.Cut(read(t, "docs/operations.md"), "| message |")
	table, _, _ = strings.Cut(table, "\n\n")
	count := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		count++
		if message := row[1]; !says(message) {
			t.Errorf("no string in the packages of the manager is %q", message)
		}
	}
	if count < 10 {
		t.Errorf("%d messages: the test does not parse the table", count)
	}
	if says("server … is fine") {
		t.Error("a message that no program prints is found")
	}
}

// filled replaces quoted values, and names with their namespace, by one ….
var filled = strings.NewReplacer(`"…"`, "…", "…/…", "…")

var verbs = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*[a-zA-Z]`)

// messages reads the strings of the packages, concatenated ones too, and returns a function that finds a message among
// them.
func messages(t *testing.T, folders ...string) func(message string) bool {
	t.Helper()
	var all []string
	for _, folder := range folders {
		paths, err := filepath.Glob(root(folder, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no source in %s (%v)", folder, err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(node ast.Node) bool {
				expression, ok := node.(ast.Expr)
				if !ok {
					return true
				}
				text, isText := literal(expression)
				if isText {
					all = append(all, filled.Replace(verbs.ReplaceAllString(text, "…")))
				}
				return !isText
			})
		}
	}
	return func(message string) bool {
		for _, text := range all {
			if text == message || strings.HasPrefix(message, "….") && strings.HasSuffix(text, strings.TrimPrefix(message, "…")) {
				return true
			}
		}
		return false
	}
}

// literal returns a string literal, or a concatenation of some with … for the rest.
func literal(expression ast.Expr) (string, bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		for _, side := range []struct {
			text *string
			is   bool
		}{{&left, isLeft}, {&right, isRight}} {
			if !side.is {
				*side.text = "…"
			}
		}
		return left + right, isLeft || isRight
	}
	return "", false
}

// TestFlags: flags on the pages exist.
func TestFlags(t *testing.T) {
	var known strings.Builder
	for _, folder := range []string{"cmd", "pkg/operator", "pkg/tracing", "tools", "hack", "test/upstream"} {
		if err := filepath.WalkDir(root(folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			relative, err := filepath.Rel(root(), path)
			if err != nil {
				return err
			}
			known.WriteString(read(t, relative))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	flag := regexp.MustCompile("`--([a-z0-9-]+)")
	for _, page := range allPages(t) {
		if !strings.HasPrefix(page, "docs/") {
			continue
		}
		for _, found := range flag.FindAllStringSubmatch(read(t, page), -1) {
			if name := found[1]; !otherFlags[name] && !strings.Contains(known.String(), fmt.Sprintf("%q", name)) {
				t.Errorf("%s has --%s, which none of our programs has", page, name)
			}
		}
	}
}

// otherFlags are flags of other programs on the pages, and flags of ours whose names the code concatenates, or a library has.
var otherFlags = map[string]bool{
	"config": true, "take-ownership": true, "management-kubeconfig": true, "bump-revision": true, "mark-compacted": true, "secure-port": true,
	"admission-control-config-file": true, "management-kube-api-qps": true, "tenant-allow-unsafe-kubeconfig": true,
	"enable-bootstrap-token-auth": true, "inspector-collectors": true, "inspector-extra-kernel-param": true,
	"installer-extra-kernel-param": true, "callback-insecure-skip-verify": true,
	"show-labels": true, "sort-by": true, "no-headers": true,
	"service-account-max-token-expiration": true, "oidc-issuer-url": true, "oidc-ca-file": true, "set-authorization-header": true,
	"quota-backend-bytes": true, "etcd-compaction-interval": true, "oidc-groups-prefix": true,
}
