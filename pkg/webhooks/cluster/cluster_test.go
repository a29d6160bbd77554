// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// indexes collects the indexes for a client in memory.
type indexes struct{ builder *fake.ClientBuilder }

func (i indexes) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	i.builder.WithIndex(object, field, values)
	return nil
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

func newCluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs)
	if err := AddIndexes(t.Context(), indexes{builder}); err != nil {
		t.Fatal(err)
	}
	inventory := inventory.NewInventory(inventory.Options{})
	inventory.MarkHostsSynced()
	inventory.MarkTypesSynced()
	c := builder.Build()
	return New(c, inventory)
}

func TestUsers(t *testing.T) {
	all := newCluster(t, interceptor.Funcs{},
		parse[v1alpha1.NodeProvider](t, "{metadata: {name: p}, spec: {properties: {karpenter.metal3.io/os-image: ubuntu, "+
			"karpenter.metal3.io/ssh-keys: 'me, team'}, metal3: {clusterRef: {namespace: h}, nodeTypes: [{name: t, "+
			"resources: {cpu: 1}, bareMetalHosts: {selector: {}}, properties: {karpenter.metal3.io/user-data-template: base}}]}}}"),
		parse[v1alpha1.NodeType](t, "{metadata: {name: t, ownerReferences: [{apiVersion: v1, kind: NodeProvider, name: p, uid: u}]}, spec: "+
			"{providerRef: {name: p}, resources: {cpu: 1}, bareMetalHosts: {selector: {}}, properties: {karpenter.metal3.io/user-data-template: "+
			"base}}}"),
		parse[v1alpha1.NodeType](t, "{metadata: {name: hand}, spec: {providerRef: {name: p}, resources: {cpu: 1}, bareMetalHosts: {selector: "+
			"{}}, properties: {karpenter.metal3.io/network-data-template: base}}}"),
		parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: m}, spec: {nodeTypeRef: {name: t}, tenantClusterRef: {name: c}, properties: "+
			"{karpenter.metal3.io/os-image: debian, karpenter.metal3.io/server-name: s1}}}"),
		parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: o}, spec: {resources: {cpu: 1}, properties: {"+
			"karpenter.metal3.io/os-image: 'No Name'}}, status: {nodeTypeRef: {name: t}}}"),
		parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: veto}, spec: {resources: {cpu: 1}, tenantClusterRef: {name: c}, "+
			"properties: {karpenter.metal3.io/ssh-keys: admin}}}"),
		parse[v1alpha1.Machine](t, "{metadata: {namespace: a, name: missing}, spec: {resources: {cpu: 1}, tenantClusterRef: {name: none}, "+
			"properties: {karpenter.metal3.io/ssh-keys: admin}}}"),
		parse[v1alpha1.Machine](t, "{metadata: {namespace: z, name: alone}, spec: {resources: {cpu: 1}, properties: "+
			"{karpenter.metal3.io/ssh-keys: admin}}}"),
		parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: a, name: c}, spec: {apiServerEndpoint: 'x:1', tenantProperties: "+
			"{osImages: [debian]}, privateNodes: {autoNodes: "+
			"[{provider: p, properties: {karpenter.metal3.io/os-image: ubuntu}, static: [{name: s, quantity: 1, nodeTypeSelector: [{property: "+
			"karpenter.metal3.io/node-type, value: p.t}]}], dynamic: [{name: d, nodeTypeSelector: [{property: "+
			"karpenter.metal3.io/node-type, operator: NotIn, values: [hand]}], properties: {karpenter.metal3.io/ssh-keys: team}}]}]}}}"),
	)
	view := all.For(t.Context())
	for name, tc := range map[string]struct {
		reason string
		kind   rules.Kind
		name   string
		want   []string
	}{
		"Type":    {"by name, by choice and by a pool", rules.KindNodeType, "t", []string{"Machine a/m", "Machine a/o", "TenantCluster a/c"}},
		"NotIn":   {"it is left out, not used", rules.KindNodeType, "hand", nil},
		"Image":   {"wherever it is written", rules.KindOSImage, "ubuntu", []string{"NodeProvider p", "TenantCluster a/c"}},
		"Machine": {"a Machine's own", rules.KindOSImage, "debian", []string{"Machine a/m"}},
		"Key":     {"one of several", rules.KindSSHKey, "team", []string{"NodeProvider p", "TenantCluster a/c"}},
		"Template": {"a type that a provider has made is that provider's", rules.KindMachineConfigTemplate, "base",
			[]string{"NodeProvider p", "NodeType hand"}},
		"Veto": {"a tenant that names what it may not name cannot keep it from being deleted", rules.KindSSHKey, "admin", nil},
		"Tenant": {"its Machines, with those that stand alone on its account", rules.KindTenantCluster, "a/c",
			[]string{"Machine a/m", "Machine a/o", "Machine a/veto"}},
		"AnotherTenant": {"another namespace", rules.KindTenantCluster, "b/c", nil},
		"Unused":        {"it is not used", rules.KindOSImage, "other", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, view.Users(tc.kind, tc.name)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if pinned := view.PinnedTo("s1"); len(pinned) != 1 || pinned[0].Name != "m" || len(view.PinnedTo("s2")) != 0 {
		t.Errorf("pinned are %v", pinned)
	}
	if !view.Exists(rules.KindNodeProvider, "p") || view.Exists(rules.KindOSImage, "ubuntu") || view.NodeType("t") == nil ||
		view.NodeType("x") != nil {
		t.Error("what exists does not, or the other way round")
	}
	if len(view.NodeProviders()) != 1 || len(view.NodeTypes()) != 2 || view.NodeTypes()[0].Name != "hand" ||
		len(view.TenantClusters("a")) != 1 || len(view.TenantClusters("b")) != 0 {
		t.Error("lists are not what there is, by name")
	}
	if err := view.Err(); err != nil {
		t.Error(err)
	}
}

// What a cache cannot answer is not taken for what does not exist.
func TestViewErrors(t *testing.T) {
	broken := newCluster(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("the cache has stopped")
		},
	})
	view := broken.For(t.Context())
	if view.Exists(rules.KindOSImage, "ubuntu"); view.Err() == nil {
		t.Error("a cache that has stopped: no error")
	}
	unsynced := New(broken.reader, inventory.NewInventory(inventory.Options{}))
	if unsynced.For(t.Context()).Err() == nil {
		t.Error("servers that are not known yet: no error")
	}
}

// TestLate: nothing more is read for a request whose time is over, and it is not answered from what has been read.
func TestLate(t *testing.T) {
	reads := 0
	all := newCluster(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			reads++
			return nil
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			reads++
			return nil
		},
	})
	ctx, end := context.WithCancel(t.Context())
	view := all.For(ctx)
	if view.Exists(rules.KindOSImage, "ubuntu"); reads != 1 || view.Err() != nil {
		t.Errorf("in time: %d reads, %v", reads, view.Err())
	}
	end()
	for range 100 {
		view.Exists(rules.KindOSImage, "ubuntu")
		view.NodeTypes()
		if _, err := view.Choose(inventory.Request{}); err != nil {
			t.Errorf("it still chooses: %v", err)
		}
	}
	if err := view.Err(); reads != 1 || !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d reads, %v", reads, err)
	}
}

// TestTrim: what is left of a copy says the same as all of it, and nothing is left that others could make large.
func TestTrim(t *testing.T) {
	key := client.ObjectKey{Namespace: "tenant-blue", Name: "vm9n4c1zh2u01y"}
	claim := kube.MetadataOf(names.ClaimKind)
	claim.Namespace, claim.Name, claim.UID = "ml", "gpu", "u1"
	made := names.HostMetadata(claim, names.ClaimKind, key, "blue", names.Metadata{})
	claim.Namespace, claim.Name, claim.Labels, claim.Annotations = key.Namespace, key.Name, made.Labels, made.Annotations
	want, ok := names.OriginOf(claim, names.ClaimKind, "blue")
	if !ok {
		t.Fatal("it is no copy")
	}
	claim.Labels["app"], claim.Annotations["note"] = "a", "n"
	claim.OwnerReferences = []metav1.OwnerReference{{Name: "a"}}
	Trim(claim)
	if got, ok := names.OriginOf(claim, names.ClaimKind, "blue"); !ok || got != want {
		t.Errorf("its origin is %v, want %v", got, want)
	}
	if len(claim.Labels)+len(claim.Annotations) != 1+len(names.OriginAnnotations) || claim.OwnerReferences != nil {
		t.Errorf("there is more left than is read: %+v", claim)
	}
	claim.Annotations[names.UIDAnnotation] = strings.Repeat("x", maxOrigin+1)
	if Trim(claim); len(claim.Annotations) != len(names.OriginAnnotations)-1 {
		t.Error("a long value is kept")
	}
}

// TestClaims: the claims of a namespace that count, as Trim leaves them.
func TestClaims(t *testing.T) {
	made := func(namespace, name string, labels, annotations map[string]string) client.Object {
		claim := kube.MetadataOf(names.ClaimKind)
		claim.Namespace, claim.Name, claim.Labels, claim.Annotations = namespace, name, labels, annotations
		Trim(claim)
		return &resourcev1.ResourceClaim{ObjectMeta: claim.ObjectMeta}
	}
	marker := map[string]string{names.MarkerLabel: "blue"}
	extended := map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		made("tenants", "copy", marker, nil), made("tenants", "extended", nil, extended),
		made("tenants", "platforms", nil, nil), made("elsewhere", "copy", marker, nil)).Build()
	if count, err := New(reader, nil).Claims(t.Context(), "tenants", "blue"); err != nil || count != 2 {
		t.Errorf("%d claims, %v, want the copy and the one that kube-scheduler has made", count, err)
	}
}
