// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// createNode makes the Node that kubelet registers on a server, for a Machine of that name. It has not been ready yet.
func createNode(t *testing.T, name string, changes ...func(*corev1.Node)) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{
			ProviderID: v1alpha1.ProviderID("metal3", "server-1", name),
			Taints:     []corev1.Taint{karpv1.UnregisteredNoExecuteTaint},
		},
	}
	for _, change := range changes {
		change(node)
	}
	if err := environment.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Client.Delete(context.Background(), node) })
	return node
}

func setReady(t *testing.T, node *corev1.Node, status corev1.ConditionStatus) {
	t.Helper()
	stored := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if err := environment.Client.Status().Patch(t.Context(), node, client.MergeFrom(stored)); err != nil {
		t.Fatal(err)
	}
}

func setProviderID(t *testing.T, object client.Object, providerID string) {
	t.Helper()
	switch object := object.(type) {
	case *karpv1.NodeClaim:
		object.Status.ProviderID = providerID
	case *v1alpha1.Machine:
		object.Status.ProviderID = providerID
	}
	if err := environment.Client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func TestNodeWithoutNodeClaim(t *testing.T) {
	const (
		same  = "same"
		other = "metal3://metal3/server-2/gpu-1"
	)
	for name, tc := range map[string]struct {
		reason string
		node   func(*corev1.Node)
		// nodeClaim and machine are the provider IDs of those that exist: none, or that of the Node.
		nodeClaim, machine *string
		othersMachine      bool
		ready              corev1.ConditionStatus
		deleted            bool
	}{
		"Gone":        {reason: "its NodeClaim was deleted between kubelet's registration and Karpenter's", deleted: true},
		"GoneUnknown": {reason: "its kubelet has ended", ready: corev1.ConditionUnknown, deleted: true},
		"GoneRegistered": {reason: "the finalizer of its NodeClaim was removed", deleted: true, node: func(n *corev1.Node) {
			n.Spec.Taints, n.Labels = nil, map[string]string{karpv1.NodeRegisteredLabelKey: "true"}
		}},
		"StillReady":     {reason: "its kubelet still runs", ready: corev1.ConditionTrue},
		"JustRegistered": {reason: "all is well", nodeClaim: pointer(same), machine: pointer(same)},
		"NodeClaim":      {reason: "its Machine is gone, but its NodeClaim is there and has a say", nodeClaim: pointer(same)},
		"Machine":        {reason: "its server is still being released", machine: pointer(same)},
		"EmptyNodeClaim": {reason: "a NodeClaim that has no provider ID yet may be the Node's", nodeClaim: pointer("")},
		"EmptyMachine":   {reason: "a Machine that was restored without its status may be the Node's", machine: pointer("")},
		"OtherServer": {reason: "NodeClaim and Machine have another server by now", nodeClaim: pointer(other), machine: pointer(other),
			deleted: true},
		"OthersMachine": {reason: "another tenant has a Machine of that name on another server, in another namespace", machine: pointer(other),
			othersMachine: true, deleted: true},
		"StandAlone": {reason: "a stand-alone Machine may be in a namespace that is not seen here",
			node: func(n *corev1.Node) { n.Spec.Taints = nil }},
		"Foreign": {reason: "it belongs to another provider", node: func(n *corev1.Node) { n.Spec.ProviderID = "kwok://gpu-1" }},
		"None":    {reason: "it has no provider ID", node: func(n *corev1.Node) { n.Spec.ProviderID = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			name := "gpu-" + cluster.Namespace
			node := createNode(t, name)
			if tc.node != nil {
				if err := environment.Client.Delete(t.Context(), node); err != nil {
					t.Fatal(err)
				}
				node = createNode(t, name, tc.node)
			}
			provider := func(id string) string {
				if id == same {
					return node.Spec.ProviderID
				}
				return id
			}
			if tc.nodeClaim != nil {
				setProviderID(t, createNodeClaim(t, name), provider(*tc.nodeClaim))
			}
			if tc.machine != nil {
				in := cluster
				if tc.othersMachine {
					in = tenanttest.TenantCluster(t, &environment)
				}
				setProviderID(t, createMachine(t, in, name, otherUID), provider(*tc.machine))
			}
			if tc.ready != "" {
				setReady(t, node, tc.ready)
			}
			clusters := tenanttest.Clusters(&environment, cluster, &faults.Connection{})
			controller := garbagecollection.NewNodeController(clusters)
			if _, err := controller.Reconcile(t.Context(), node.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if got := !exists(t, node); got != tc.deleted {
				t.Errorf("%s: deleted is %v, want %v", tc.reason, got, tc.deleted)
			}
		})
	}
}

func pointer(providerID string) *string { return &providerID }

// No error of the API servers may delete a Node.
func TestNodeIsKept(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "things"}
	gone, down := apierrors.NewNotFound(resource, "x"), apierrors.NewServiceUnavailable("down")
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "x", "404 page not found", 0, true)
	type answers struct{ cached, live error }
	for name, tc := range map[string]struct {
		reason              string
		nodeClaims, machine answers
		wantError           bool
	}{
		"CachesAreBehind":      {"the caches show neither yet, the API servers do", answers{cached: gone}, answers{cached: gone}, false},
		"MachineIsThere":       {"the NodeClaim is gone, the Machine is on its way", answers{gone, gone}, answers{cached: gone}, false},
		"NodeClaimIsThere":     {"the Machine is gone, the NodeClaim is there", answers{cached: gone}, answers{gone, gone}, false},
		"TenantCacheFails":     {"it has not been filled yet", answers{cached: errors.New("not synced")}, answers{gone, gone}, true},
		"ManagementCacheFails": {"it has not been filled yet", answers{gone, gone}, answers{cached: errors.New("not synced")}, true},
		"TenantOutage":         {"the tenant's API server is down", answers{gone, down}, answers{gone, gone}, true},
		"ManagementOutage":     {"the management cluster is down", answers{gone, gone}, answers{gone, down}, true},
		"NodeClaimsUnknown":    {"their definition is gone, which is also a 404", answers{gone, unserved}, answers{gone, gone}, true},
		"MachinesUnknown":      {"their definition is gone, which is also a 404", answers{gone, gone}, answers{gone, unserved}, true},
		"Forbidden": {"the provider's rights were taken away", answers{gone, gone},
			answers{gone, apierrors.NewForbidden(resource, "x", nil)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := tenanttest.TenantCluster(t, &environment)
			node := createNode(t, "gpu-"+cluster.Namespace)
			setProviderID(t, createNodeClaim(t, node.Name), node.Spec.ProviderID)
			setProviderID(t, createMachine(t, cluster, node.Name, otherUID), node.Spec.ProviderID)
			clusters := tenanttest.Clusters(&environment, cluster, &faults.Connection{})
			for reader, answer := range map[*client.Client]error{&clusters.Tenant.Client: tc.nodeClaims.cached,
				&clusters.Management.Client: tc.machine.cached} {
				*reader = refusing(t, answer)
			}
			clusters.Tenant.Live, clusters.Management.Live = refusing(t, tc.nodeClaims.live), refusing(t, tc.machine.live)
			_, err := garbagecollection.NewNodeController(clusters).Reconcile(t.Context(), node.DeepCopy())
			if (err != nil) != tc.wantError {
				t.Errorf("%s: got error %v", tc.reason, err)
			}
			if !exists(t, node) {
				t.Errorf("%s: the node was deleted", tc.reason)
			}
		})
	}
}

// refusing returns a client that answers with the error whatever it is asked for, and truly if there is none.
func refusing(t *testing.T, answer error) client.Client {
	t.Helper()
	return interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if answer != nil {
				return answer
			}
			return c.Get(ctx, key, object, opts...)
		},
	})
}

// A Node that has changed since the cache saw it may be another of that name, or may have a kubelet again.
func TestStaleNodeIsNotDeleted(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	node := createNode(t, "gpu-"+cluster.Namespace)
	stale := node.DeepCopy()
	setReady(t, node, corev1.ConditionTrue)
	another := stale.DeepCopy()
	another.UID, another.ResourceVersion = types.UID("22222222-2222-2222-2222-222222222222"), node.ResourceVersion
	controller := garbagecollection.NewNodeController(tenanttest.Clusters(&environment, cluster, &faults.Connection{}))
	for _, old := range []*corev1.Node{stale, another} {
		result, err := controller.Reconcile(t.Context(), old)
		if err != nil || result.RequeueAfter == 0 {
			t.Errorf("want another look at it, got %v, %v", result, err)
		}
	}
	if !exists(t, node) {
		t.Error("the node was deleted on the strength of an old copy")
	}
}

func TestNodeCrash(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	node := createNode(t, "gpu-"+cluster.Namespace)
	for writes, wantDeleted := range []bool{false, true} {
		process := &faults.Connection{Kind: faults.Crash, At: writes}
		controller := garbagecollection.NewNodeController(tenanttest.Clusters(&environment, cluster, process))
		_, err := controller.Reconcile(t.Context(), node.DeepCopy())
		if (err == nil) != wantDeleted || exists(t, node.DeepCopy()) == wantDeleted {
			t.Fatalf("with %d writes: got error %v, want deleted %v", writes, err, wantDeleted)
		}
	}
}

// With caches and watches: a Node is deleted after both its NodeClaim and its Machine, or when its kubelet stops.
func TestNodeWatches(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	type server struct {
		nodeClaim *karpv1.NodeClaim
		machine   *v1alpha1.Machine
		node      *corev1.Node
	}
	servers := map[string]server{}
	for _, name := range []string{"machine-last", "nodeclaim-last", "ready", "moving", "staying"} {
		name += "-" + cluster.Namespace
		s := server{nodeClaim: createNodeClaim(t, name), machine: createMachine(t, cluster, name, otherUID), node: createNode(t, name)}
		setProviderID(t, s.nodeClaim, s.node.Spec.ProviderID)
		setProviderID(t, s.machine, s.node.Spec.ProviderID)
		servers[name[:len(name)-len(cluster.Namespace)-1]] = s
	}
	orphan := createNode(t, "orphan-"+cluster.Namespace)
	setReady(t, servers["ready"].node, corev1.ConditionTrue)

	tenanttest.Run(t, &environment, cluster, func(clusters tenant.Clusters, _ manager.Manager) tenanttest.Registrar {
		return garbagecollection.NewNodeController(clusters)
	})
	remove := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			if err := environment.Client.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	follows := func(what string, node *corev1.Node) {
		t.Helper()
		tenanttest.Eventually(t, what, func(context.Context) (bool, error) { return !exists(t, node), nil })
	}
	follows("the orphaned node from before the start is gone", orphan)

	last := servers["machine-last"]
	remove(last.nodeClaim, last.machine)
	follows("the node has followed its machine", last.node)

	last = servers["nodeclaim-last"]
	remove(last.machine, last.nodeClaim)
	follows("the node has followed its nodeclaim", last.node)

	moving := servers["moving"]
	remove(moving.nodeClaim)
	setProviderID(t, moving.machine, v1alpha1.ProviderID("metal3", "server-2", moving.machine.Name))
	follows("the node has gone with the server that its machine had", moving.node)

	ready := servers["ready"]
	remove(ready.nodeClaim, ready.machine)
	if !exists(t, ready.node) {
		t.Error("a node whose kubelet runs was deleted")
	}
	setReady(t, ready.node, corev1.ConditionUnknown)
	follows("the node has gone after its kubelet", ready.node)

	if staying := servers["staying"]; !exists(t, staying.node) {
		t.Error("the node of a nodeclaim that exists was deleted")
	}
}
