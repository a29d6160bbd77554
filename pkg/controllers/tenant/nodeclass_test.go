// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclass"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

func create(t *testing.T, object client.Object) {
	t.Helper()
	if err := environment.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	// These kinds have no namespace, so what one test leaves behind is in the way of the next.
	t.Cleanup(func() {
		ctx, noFinalizers := context.Background(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(environment.Client.Patch(ctx, object, noFinalizers)); err != nil {
			t.Errorf("cleaning up, %v", err)
		}
		if err := client.IgnoreNotFound(environment.Client.Delete(ctx, object)); err != nil {
			t.Errorf("cleaning up, %v", err)
		}
	})
}

func createProvider(t *testing.T, name string, types ...v1alpha1.NodeTypeTemplate) *v1alpha1.NodeProvider {
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeProviderSpec{
		Metal3: v1alpha1.Metal3Fleet{ClusterRef: v1alpha1.Metal3ClusterRef{Namespace: "metal3-system"}, NodeTypes: types}}}
	create(t, provider)
	return provider
}

func createType(t *testing.T, name, provider string) {
	create(t, &v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeTypeSpec{
			ProviderRef:     v1alpha1.NameReference{Name: provider},
			HardwareProfile: v1alpha1.HardwareProfile{Resources: env.Resources("cpu", "1", "memory", "1Gi")},
		},
	})
}

func createClass(t *testing.T, name, provider string, properties map[string]string) *v1alpha1.MetalNodeClass {
	class := &v1alpha1.MetalNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MetalNodeClassSpec{Properties: properties},
	}
	if provider != "" {
		class.Spec.ProviderRef = &v1alpha1.NameReference{Name: provider}
	}
	create(t, class)
	return class
}

func get(t *testing.T, class *v1alpha1.MetalNodeClass) *v1alpha1.MetalNodeClass {
	t.Helper()
	got := &v1alpha1.MetalNodeClass{}
	if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(class), got); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestInvalidKubeletArgs: nodes that no kubelet would start on are not launched.
func TestInvalidKubeletArgs(t *testing.T) {
	class := createClass(t, "kubelet-args", "", nil)
	class.Spec.KubeletArgs = v1alpha1.KubeletArgs{"eviction-hard": "memory.available>1Gi"}
	if err := environment.Client.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	clusters := tenanttest.ClustersOf(tenanttest.TenantCluster(t, &environment), environment.Client, environment.Client)
	controller := nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(1)))
	if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
		t.Fatal(err)
	}
	validated := get(t, class).StatusConditions().Get(v1alpha1.ConditionValidationSucceeded)
	if validated.Reason != nodeclass.ReasonInvalidKubeletArgs || !strings.Contains(validated.Message, "eviction-hard=memory.available>1Gi") {
		t.Errorf("got %s: %s", validated.Reason, validated.Message)
	}
}

// TestLongProperties: the definition counts characters, and the management cluster would store bytes. No Machine is made of such a class.
func TestLongProperties(t *testing.T) {
	long := strings.Repeat("€", v1alpha1.MaxPropertyLength/3)
	for name, tc := range map[string]struct {
		reason     string
		properties map[string]string
		says       string
	}{
		"value": {"one is too long", map[string]string{"a": long + "€"},
			"spec.properties: the value of a has 65538 bytes, and a property has at most 65536"},
		"total": {"all together are too long", map[string]string{"a": long, "b": long, "c": "long"},
			"spec.properties: all keys and values have 131077 bytes together, and may have 131072"},
		"quoted": {"the message quotes a value", map[string]string{v1alpha1.PropertyOSImage: long}, "os-image"},
	} {
		t.Run(name, func(t *testing.T) {
			class := createClass(t, "long-"+name, "", tc.properties)
			clusters := tenanttest.ClustersOf(tenanttest.TenantCluster(t, &environment), environment.Client, environment.Client)
			controller := nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(1)))
			if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
				t.Fatal(err)
			}
			validated := get(t, class).StatusConditions().Get(v1alpha1.ConditionValidationSucceeded)
			if validated.Reason != nodeclass.ReasonInvalidProperties || !strings.Contains(validated.Message, tc.says) ||
				len(validated.Message) > conditions.MaxMessage {
				t.Errorf("%s: got %s: %.200s (%d bytes)", tc.reason, validated.Reason, validated.Message, len(validated.Message))
			}
		})
	}
}

func TestNodeClassValidation(t *testing.T) {
	ubuntu := v1alpha1.NodeTypeTemplate{Name: "full-ubuntu", HardwareProfile: v1alpha1.HardwareProfile{
		Resources: env.Resources("cpu", "1", "memory", "1Gi"), Properties: map[string]string{v1alpha1.PropertyOSImage: "ubuntu"}}}
	full := createProvider(t, "full", ubuntu)
	createType(t, "full-type", "full")
	create(t, &v1alpha1.NodeType{
		ObjectMeta: metav1.ObjectMeta{Name: ubuntu.Name, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(full, v1alpha1.GroupVersion.WithKind("NodeProvider"))}},
		Spec: v1alpha1.NodeTypeSpec{ProviderRef: v1alpha1.NameReference{Name: full.Name}, HardwareProfile: ubuntu.HardwareProfile},
	})
	createProvider(t, "hollow")
	for name, tc := range map[string]struct {
		reason     string
		provider   string
		properties map[string]string
		want       metav1.ConditionStatus
		wantReason string
		wantWords  string
	}{
		"Good": {"its provider has types", "full", map[string]string{v1alpha1.PropertyOSImage: "ubuntu"}, metav1.ConditionTrue,
			"ValidationSucceeded", ""},
		"NoProvider": {"all providers will do", "", nil, metav1.ConditionTrue, "ValidationSucceeded", ""},
		"Unknown":    {"its provider does not exist", "nowhere", nil, metav1.ConditionFalse, "ProviderNotFound", `NodeProvider "nowhere"`},
		"Hollow": {"its provider has no types", "hollow", nil, metav1.ConditionFalse, "NoNodeTypes",
			`NodeProvider "hollow" has no NodeTypes`},
		"Pinned": {"a class cannot pin all its Machines to one server", "full", map[string]string{v1alpha1.PropertyServerName: "server-01"},
			metav1.ConditionFalse, "InvalidProperties", "set it on the Machine"},
		"ForeignImage": {"no type of the tenant is installed with it", "full", map[string]string{v1alpha1.PropertyOSImage: "secret"},
			metav1.ConditionFalse, "InvalidProperties", `("secret") is not among what the tenant may name: choose from ubuntu, or have it`},
		"ImageURL": {"Ironic would fetch what the tenant says", "", map[string]string{v1alpha1.PropertyImageURL: "http://192.0.2.1/x.iso"},
			metav1.ConditionFalse, "InvalidProperties", v1alpha1.PropertyImageURL},
		"BadImage": {"an OSImage cannot have that name", "full", map[string]string{v1alpha1.PropertyOSImage: "Ubuntu 24"},
			metav1.ConditionFalse, "InvalidProperties", "karpenter.metal3.io/os-image"},
		"TwoKeys": {"nobody could say which counts", "", map[string]string{v1alpha1.PropertyOSImage: "ubuntu",
			v1alpha1.ReferenceKey(v1alpha1.PropertyOSImage): "debian"}, metav1.ConditionFalse, "InvalidProperties", "another value under its alias"},
		"BadKey": {"a typing error in a key would be ignored silently", "", map[string]string{"karpenter.metal3.io/os image": "x"},
			metav1.ConditionFalse, "InvalidProperties", `"karpenter.metal3.io/os image"`},
	} {
		t.Run(name, func(t *testing.T) {
			class := createClass(t, "validation-"+strings.ToLower(name), tc.provider, tc.properties)
			clusters := tenanttest.ClustersOf(tenanttest.TenantCluster(t, &environment), environment.Client, environment.Client)
			controller := nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(1)))
			if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
				t.Fatal(err)
			}
			got := get(t, class)
			ready, validated := got.StatusConditions().Get(status.ConditionReady), got.StatusConditions().Get(v1alpha1.ConditionValidationSucceeded)
			if ready.Status != tc.want || validated.Status != tc.want || validated.Reason != tc.wantReason ||
				!strings.Contains(validated.Message, tc.wantWords) {
				t.Errorf("%s: got Ready %s and validation %s, %s: %s; want %s, %s", tc.reason,
					ready.Status, validated.Status, validated.Reason, validated.Message, tc.want, tc.wantReason)
			}
			if diff := cmp.Diff([]string{"karpenter.metal3.io/termination"}, got.Finalizers); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
				t.Fatal(err)
			}
			if again := get(t, class); again.ResourceVersion != got.ResourceVersion {
				t.Errorf("%s: the class was written again although nothing has changed", tc.reason)
			}
		})
	}
}

// TestPinnedClass: a pin is left to the classes that the provider generates, which carry its TenantCluster in a label.
func TestPinnedClass(t *testing.T) {
	key, cluster := tenanttest.TenantCluster(t, &environment), &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.TenantProperties = &v1alpha1.TenantProperties{Keys: []string{v1alpha1.PropertyServerName}}
	if err := environment.Client.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	clusters := tenanttest.ClustersOf(key, environment.Client, environment.Client)
	controller := nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(record.NewFakeRecorder(1)))
	for name, tc := range map[string]struct {
		reason, label string
		want          metav1.ConditionStatus
	}{
		"generated": {"the TenantCluster was validated for it", autonodes.OwnerLabel(key), metav1.ConditionTrue},
		"foreign":   {"any user of the tenant can write a label with another value", "whatever", metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			class := createClass(t, "pinned-"+name, "", map[string]string{v1alpha1.PropertyServerName: "server-01"})
			class.Labels = map[string]string{v1alpha1.TenantPoolLabelKey: tc.label}
			if err := environment.Client.Update(t.Context(), class); err != nil {
				t.Fatal(err)
			}
			if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
				t.Fatal(err)
			}
			if validated := get(t, class).StatusConditions().Get(v1alpha1.ConditionValidationSucceeded); validated.Status != tc.want {
				t.Errorf("%s: validation is %s: %s", tc.reason, validated.Status, validated.Message)
			}
		})
	}
}

// A class that loses Ready for want of an answer would stop its NodePools.
func TestNodeClassStatusDuringOutage(t *testing.T) {
	createProvider(t, "outage")
	createType(t, "outage-type", "outage")
	class := createClass(t, "outage", "outage", nil)
	cluster := tenanttest.TenantCluster(t, &environment)
	recorder := events.NewRecorder(record.NewFakeRecorder(1))
	controller := nodeclass.NewController(clock.RealClock{}, tenanttest.ClustersOf(cluster, environment.Client, environment.Client), recorder)
	if _, err := controller.Reconcile(t.Context(), get(t, class)); err != nil {
		t.Fatal(err)
	}
	before := get(t, class)
	down := interceptor.NewClient(tenanttest.WithWatch(&environment), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("down")
		},
	})
	controller = nodeclass.NewController(clock.RealClock{}, tenanttest.ClustersOf(cluster, environment.Client, down), recorder)
	if _, err := controller.Reconcile(t.Context(), get(t, class)); err == nil {
		t.Error("the controller must try again")
	}
	if diff := cmp.Diff(before, get(t, class)); diff != "" {
		t.Errorf("the class has changed (-before +after):\n%s", diff)
	}
}

// With caches and watches: the class follows its provider, and waits for its NodeClaims when it is deleted.
func TestNodeClassFinalizer(t *testing.T) {
	class := createClass(t, "life", "life", nil)
	published := record.NewFakeRecorder(10)
	tenanttest.Run(t, &environment, tenanttest.TenantCluster(t, &environment),
		func(clusters tenant.Clusters, m manager.Manager) tenanttest.Registrar {
			return nodeclass.NewController(clock.RealClock{}, clusters, events.NewRecorder(published))
		})
	isReady := func(want bool) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) {
			ready := get(t, class).StatusConditions().Get(status.ConditionReady)
			return ready != nil && (want && ready.IsTrue() || !want && ready.IsFalse()), nil
		}
	}
	tenanttest.Eventually(t, "a class without its provider is not ready", isReady(false))
	createProvider(t, "life")
	createType(t, "life-type", "life")
	tenanttest.Eventually(t, "the class is ready", isReady(true))

	nodeClaim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "life"},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: class.Name},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
		},
	}
	create(t, nodeClaim)
	if err := environment.Client.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	event := poll.Receive(t, "an event that says why the class is not deleted", published.Events)
	if want := corev1.EventTypeNormal + " InUse Waiting for NodeClaims to go before this class does: life"; event != want {
		t.Errorf("got event %q, want %q", event, want)
	}
	get(t, class)
	if err := environment.Client.Delete(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	tenanttest.Eventually(t, "the class is gone", func(ctx context.Context) (bool, error) {
		err := environment.Client.Get(ctx, client.ObjectKeyFromObject(class), &v1alpha1.MetalNodeClass{})
		return err != nil, client.IgnoreNotFound(err)
	})
}
