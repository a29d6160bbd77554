// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// cluster is a real API server with the accounts and rights of a chart.
type cluster struct {
	*env.Environment
	// kinds of the API server, by their names in kubectl: "machines.karpenter.metal3.io/status".
	kinds map[string]kind
}

type kind struct {
	schema.GroupVersionResource
	subresource string
	namespaced  bool
	verbs       []string
}

// newCluster starts an API server with namespaces.
func newCluster(t *testing.T, namespaces ...string) *cluster {
	t.Helper()
	c := &cluster{Environment: env.NewEnvironment(t), kinds: map[string]kind{}}
	for _, name := range namespaces {
		if err := c.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	lists, err := kubernetes.NewForConfigOrDie(c.Config).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	clientset := kubernetes.NewForConfigOrDie(c.Config)
	for _, preferred := range lists { // these leave out subresources
		version, err := schema.ParseGroupVersion(preferred.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		all, err := clientset.Discovery().ServerResourcesForGroupVersion(preferred.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range all.APIResources {
			name, subresource, _ := strings.Cut(resource.Name, "/")
			called := kind{version.WithResource(name), subresource, resource.Namespaced, resource.Verbs}
			c.kinds[called.String()] = called
		}
	}
	// These are not kinds: they exist only in RBAC.
	for _, name := range []string{"users", "groups"} {
		c.kinds[name] = kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}, verbs: []string{"impersonate"}}
	}
	return c
}

// String returns its name in kubectl.
func (k kind) String() string {
	name := k.Resource
	if k.Group != "" {
		name += "." + k.Group
	}
	if k.subresource != "" {
		name += "/" + k.subresource
	}
	return name
}

// accounts applies the accounts and rights of a rendered chart, and returns once the API server authorizes by them.
func (c *cluster) accounts(t *testing.T, release, namespace, chart string, flags ...string) {
	t.Helper()
	out, problems, err := helm(t, append([]string{"template", release, chart, "--namespace=" + namespace}, flags...)...)
	if err != nil {
		t.Fatalf("rendering %s %v: %v\n%s", chart, flags, err, problems)
	}
	var rights []client.Object
	for _, object := range parse(t, out) {
		if !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, object.GetKind()) {
			continue
		}
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		rights = append(rights, object)
	}
	if err := env.AwaitRights(t.Context(), c.Client, rights...); err != nil {
		t.Fatal(err)
	}
}

// TestForbidden: a real API server denies the accounts of the charts everything in the tables, which are also in
// docs/rights.md.
func TestForbidden(t *testing.T) {
	t.Setenv(audit.DirectoryVariable, "") // these attempts must not count as use of a right
	management := newCluster(t, hostNamespace, systemNamespace, tenantNamespace, otherNamespace)
	management.accounts(t, "servers", systemNamespace, Management, "--set=manager.hostNamespaces={"+hostNamespace+"}")
	management.accounts(t, "acme", tenantNamespace, Tenant)
	management.accounts(t, "globex", otherNamespace, Tenant)
	tenant := newCluster(t, systemNamespace)
	tenant.accounts(t, "acme", systemNamespace, Tenant, "--set=target=tenant", "--set=access.tenantNamespace="+tenantNamespace)

	may := map[string]forbidden{
		"karpenter-metal3-manager": {verbs: reading, resource: "baremetalhosts.metal3.io"},
		"karpenter-metal3-webhook": {verbs: "list watch", resource: "machines.karpenter.metal3.io"},
		"karpenter-metal3-provider-acme": {verbs: "get list watch create patch delete", resource: "machines.karpenter.metal3.io",
			namespaces: tenantNamespace},
		"karpenter-metal3-provider": {verbs: reading, resource: "nodes"},
	}
	tables := map[string]string{}
	for _, side := range []struct {
		own, foreign *cluster
		accounts     map[string]accountTable
	}{{management, tenant, managementAccounts}, {tenant, management, tenantAccounts}} {
		for name, tc := range side.accounts {
			t.Run(name, func(t *testing.T) {
				token := side.own.token(t, tc.namespace, name)
				account := side.own.login(t, token)
				// An account without any rights would pass.
				for _, what := range side.own.attempts(t, tc.namespace, may[name]) {
					allowed, err := account.reviewed(t.Context(), what)
					if tried := account.try(t.Context(), what); err != nil || !allowed || apierrors.IsForbidden(tried) || apierrors.IsUnauthorized(tried) {
						t.Errorf("it cannot even %s %s: %v, %v, %v", what.verb, what.kind, allowed, err, tried)
					}
				}
				var table strings.Builder
				table.WriteString(heading)
				tried := 0
				for n, line := range slices.Concat(tc.forbidden, escalation) {
					for _, what := range side.own.attempts(t, tc.namespace, line) {
						tried++
						if allowed, err := account.reviewed(t.Context(), what); err != nil || allowed {
							t.Errorf("%s: it is told that it may %s %s %s in %q (%v)", line.why, what.verb, what.kind, what.name, what.namespace, err)
						}
						if err := account.try(t.Context(), what); !apierrors.IsForbidden(err) {
							t.Errorf("%s: it can %s %s %s in %q: %v", line.why, what.verb, what.kind, what.name, what.namespace, err)
						}
					}
					if n < len(tc.forbidden) {
						table.WriteString(line.String())
					}
				}
				// The tokens of one cluster are not valid in the other.
				elsewhere := side.foreign.login(t, token)
				for _, what := range side.foreign.attempts(t, "", forbidden{verbs: every, resource: "secrets"}) {
					if err := elsewhere.try(t.Context(), what); !apierrors.IsUnauthorized(err) {
						t.Errorf("the API server of the other cluster knows it: %s %s: %v", what.verb, what.kind, err)
					}
				}
				tables[name] = table.String()
				t.Logf("%s, %d attempts denied:\n%s", name, tried, table.String())
			})
		}
	}
	all := heading
	for _, line := range escalation {
		all += line.String()
	}
	t.Logf("no account:\n%s", all)
	if tables["every account"] = all; len(tables) == len(may)+1 {
		documents(t, tables)
	}
}

// heading of the tables.
const heading = "| it cannot | what | in | because |\n|---|---|---|---|\n"

// String is the line of a table in Markdown.
func (f forbidden) String() string {
	where, what := strings.ReplaceAll(f.namespaces, ",", ", "), f.resource
	if where == "" {
		where = "(the cluster)"
	}
	if f.name != "" {
		what += " " + f.name
	}
	verbs := strings.ReplaceAll(f.verbs, " ", ", ")
	for _, short := range [][2]string{{every, "anything"}, {reading, "read"}, {writing, "write"}} {
		verbs = strings.Replace(verbs, strings.ReplaceAll(short[0], " ", ", "), short[1], 1)
	}
	return fmt.Sprintf("| %s | `%s` | %s | %s |\n", verbs, what, where, f.why)
}

// documents compares docs/rights.md with the tables, or writes them there with -update.
func documents(t *testing.T, tables map[string]string) {
	t.Helper()
	file := filepath.Join("..", "docs", "rights.md")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for name, table := range tables {
		begin, end := "<!-- what "+name+" cannot do -->\n", "<!-- end -->\n"
		before, rest, found := strings.Cut(text, begin)
		is, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Errorf("%s has no place for the table of %s: %s", file, name, begin+end)
			continue
		}
		if *update {
			text = before + begin + table + end + after
		} else if is != table {
			t.Errorf("%s says otherwise of %s; if the table is right, run this test with -update", file, name)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
