// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/test"
)

// cluster is a real API server with what a chart makes for its accounts.
type cluster struct {
	*test.Environment
	// kinds that the API server knows, by what kubectl calls them: "machines.karpenter.metal3.io/status".
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
	c := &cluster{Environment: test.NewEnvironment(t), kinds: map[string]kind{}}
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
		for _, one := range all.APIResources {
			name, subresource, _ := strings.Cut(one.Name, "/")
			called := kind{version.WithResource(name), subresource, one.Namespaced, one.Verbs}
			c.kinds[called.String()] = called
		}
	}
	// These are no kinds: RBAC alone knows them.
	for _, name := range []string{"users", "groups"} {
		c.kinds[name] = kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}, verbs: []string{"impersonate"}}
	}
	return c
}

// String is what kubectl calls it.
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

// accounts applies what of a rendered chart is about accounts and their rights.
func (c *cluster) accounts(t *testing.T, release, namespace, chart string, flags ...string) {
	t.Helper()
	out, problems, err := helm(t, append([]string{"template", release, chart, "--namespace=" + namespace}, flags...)...)
	if err != nil {
		t.Fatalf("rendering %s %v: %v\n%s", chart, flags, err, problems)
	}
	for _, object := range parse(t, out) {
		if !slices.Contains([]string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}, object.GetKind()) {
			continue
		}
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// attempt is one thing that an account tries.
type attempt struct {
	verb      string
	kind      kind
	namespace string
	name      string
}

// attempts are what a line of a table stands for.
func (c *cluster) attempts(t *testing.T, own string, line forbidden) []attempt {
	t.Helper()
	called, known := c.kinds[line.resource]
	if !known {
		t.Fatalf("the API server knows no %s, so that it is no wonder that nobody may have it", line.resource)
	}
	namespaces := strings.FieldsFunc(strings.ReplaceAll(line.namespaces, ownNamespace, own), func(r rune) bool { return r == ',' })
	if len(namespaces) > 0 && !called.namespaced {
		t.Fatalf("%s are in no namespace", line.resource)
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all []attempt
	for _, verb := range strings.Fields(line.verbs) {
		// A table may say "every verb" of what has only some, and RBAC has verbs of its own.
		if !slices.Contains(append(called.verbs, "bind", "escalate", "impersonate"), verb) {
			continue
		}
		for _, namespace := range namespaces {
			all = append(all, attempt{verb, called, namespace, line.name})
		}
	}
	if len(all) == 0 {
		t.Fatalf("nobody can do any of %q to %s", line.verbs, line.resource)
	}
	return all
}

// account is somebody who tries things at an API server.
type account struct {
	config *rest.Config
	client client.Client
}

// token of a service account.
func (c *cluster) token(t *testing.T, namespace, name string) string {
	t.Helper()
	serviceAccount := &corev1.ServiceAccount{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, serviceAccount); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := c.Client.SubResource("token").Create(t.Context(), serviceAccount, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// as is whoever has a token, with no other credentials.
func (c *cluster) as(t *testing.T, token string) *account {
	t.Helper()
	config := &rest.Config{Host: c.Config.Host, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData}}
	limited, err := client.New(config, client.Options{Scheme: c.Scheme, Mapper: c.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return &account{config, limited}
}

// reviewed is what the API server says about an attempt when it is only asked.
func (a *account) reviewed(ctx context.Context, what attempt) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: what.verb, Group: what.kind.Group, Version: what.kind.Version, Resource: what.kind.Resource, Subresource: what.kind.subresource,
		Namespace: what.namespace, Name: what.name,
	}}}
	err := a.client.Create(ctx, review)
	return review.Status.Allowed, err
}

// try does it, without a lasting effect if it should be possible after all. The answer of an API server that does not know
// or does not like the object is an error too, but another one than Forbidden.
func (a *account) try(ctx context.Context, what attempt) error {
	config := rest.CopyConfig(a.config)
	path := []string{"/apis", what.kind.Group, what.kind.Version}
	if what.kind.Group == "" {
		path = []string{"/api", what.kind.Version}
	}
	if what.namespace != "" {
		path = append(path, "namespaces", what.namespace)
	}
	path = append(path, what.kind.Resource)
	query := "dryRun=All"
	method, body, onCollection := "", "{}", false
	switch what.verb {
	case "get":
		method, body = http.MethodGet, ""
	case "list", "watch":
		method, body, onCollection, query = http.MethodGet, "", true, "timeoutSeconds=1"
		if what.verb == "watch" {
			query += "&watch=true"
		}
	case "create":
		method, onCollection = http.MethodPost, what.kind.subresource == ""
	case "update":
		method = http.MethodPut
	case "patch":
		method = http.MethodPatch
	case "delete":
		method = http.MethodDelete
	case "deletecollection":
		method, onCollection = http.MethodDelete, true
	case "impersonate":
		path, query, method, body, onCollection = []string{"/api", "v1", "namespaces"}, "", http.MethodGet, "", true
		switch what.kind.Resource {
		case "users":
			config.Impersonate.UserName = what.name
		case "groups":
			config.Impersonate.UserName, config.Impersonate.Groups = "somebody", []string{what.name}
		case "serviceaccounts":
			config.Impersonate.UserName = "system:serviceaccount:" + what.namespace + ":" + what.name
		}
	default:
		return apierrors.NewForbidden(schema.GroupResource{}, "", fmt.Errorf("%s is no request: what it is for is tried in its place", what.verb))
	}
	switch {
	case onCollection && what.name != "" && what.verb != "create" && what.verb != "impersonate":
		query += "&fieldSelector=metadata.name=" + what.name
	case !onCollection:
		path = append(path, cmp.Or(what.name, "any"))
		if what.kind.subresource != "" {
			path = append(path, what.kind.subresource)
		}
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+strings.Join(path, "/")+"?"+query, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if what.verb == "patch" {
		request.Header.Set("Content-Type", string(types.MergePatchType))
	}
	response, err := transport.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return err
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, what.verb, schema.GroupResource{Group: what.kind.Group, Resource: what.kind.Resource}, what.name, text.String(), 0, false)
}

// TestForbidden: what the accounts of the charts must not be able to do, a real API server does not let them. It prints the
// tables, which are in docs/security.md too.
func TestForbidden(t *testing.T) {
	t.Setenv(audit.DirectoryVariable, "") // what is tried here is no use of a right
	management := newCluster(t, hostNamespace, systemNamespace, tenantNamespace, otherNamespace)
	management.accounts(t, "servers", systemNamespace, Management, "--set=manager.hostNamespaces={"+hostNamespace+"}")
	management.accounts(t, "acme", tenantNamespace, Tenant)
	management.accounts(t, "globex", otherNamespace, Tenant)
	tenant := newCluster(t, systemNamespace)
	tenant.accounts(t, "acme", systemNamespace, Tenant, "--set=target=tenant")

	may := map[string]forbidden{
		"karpenter-metal3-manager":       {verbs: reading, resource: "baremetalhosts.metal3.io"},
		"karpenter-metal3-webhook":       {verbs: "list watch", resource: "machines.karpenter.metal3.io"},
		"karpenter-metal3-provider-acme": {verbs: "get list watch create patch delete", resource: "machines.karpenter.metal3.io", namespaces: tenantNamespace},
		"karpenter-metal3-provider":      {verbs: reading, resource: "nodes"},
	}
	tables := map[string]string{}
	for _, side := range []struct {
		own, foreign *cluster
		accounts     map[string]accountTable
	}{{management, tenant, managementAccounts}, {tenant, management, tenantAccounts}} {
		for name, tc := range side.accounts {
			t.Run(name, func(t *testing.T) {
				token := side.own.token(t, tc.namespace, name)
				account := side.own.as(t, token)
				// Else it would be no wonder that it may do nothing.
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
				// What is trusted in one cluster is nobody in the other.
				elsewhere := side.foreign.as(t, token)
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
	if tables["anybody"] = all; len(tables) == len(may)+1 {
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

// documents holds docs/security.md to the tables, or writes them there with -update.
func documents(t *testing.T, tables map[string]string) {
	t.Helper()
	file := filepath.Join("..", "docs", "security.md")
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
