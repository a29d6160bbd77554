// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// byWebhook and byPolicy are in the refusals of the webhook and of the policy.
const (
	byWebhook = `admission webhook "pods.karpenter.metal3.io" denied the request`
	prefix    = corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix)
	byPolicy  = `ValidatingAdmissionPolicy 'karpenter-metal3-resourceclaims' with binding 'karpenter-metal3-resourceclaims' denied request`
)

// asProvider is a client with the name of a provider's account, and rights to create claims and templates.
func asProvider(t *testing.T, tenant string) client.Client {
	t.Helper()
	user := "karpenter-metal3-provider-" + tenant
	name := metav1.ObjectMeta{Namespace: tenant, Name: user}
	environment.Give(t,
		&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{resourcev1.GroupName},
			Resources: []string{"resourceclaims", "resourceclaimtemplates"}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}})
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: environment.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// way is a way to ask for a device: an object that the host gets for a tenant.
type way struct {
	reason string
	// refused is what the refusal contains.
	refused string
	// create asks for a class: by a resource of containers, or by the name of the class, as the way needs.
	create func(ctx context.Context, class string, resource corev1.ResourceName) error
	// byName is a way that names the class itself and no resource.
	byName bool
	// never is a way that the API server allows for no class.
	never bool
}

// TestWaysToAskForDevices: whichever way a tenant asks for a device, it gets none of a class that it may not ask for, and one of a class
// that it may ask for. A new way is a new row.
func TestWaysToAskForDevices(t *testing.T) {
	asked(t)
	const tenant = "research"
	classes := []*resourcev1.DeviceClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "ways-own", Labels: map[string]string{"ways": "own"}},
			Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("ways.example.com/own")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ways-other", Labels: map[string]string{"ways": "other"}},
			Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("ways.example.com/other")}},
	}
	for _, class := range classes {
		environment.Give(t, class)
	}
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range policies {
		if strings.HasSuffix(object.GetName(), "-resourceclaims") {
			environment.Give(t, object)
		}
	}
	cluster := &v1alpha1.TenantCluster{}
	key := client.ObjectKey{Namespace: tenant, Name: tenant}
	if err := environment.Client.Get(t.Context(), key, cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	cluster.Spec.Sync.FromHost.DeviceClasses = v1alpha1.DeviceClassSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true},
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"ways": "own"}}}
	if err := environment.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Client.Patch(context.Background(), before, client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"sync":{"fromHost":null}}}`))); err != nil {
			t.Error(err)
		}
	})
	// The manager writes what the policy reads.
	status := cluster.DeepCopy()
	status.Status.AllowedDevices = &v1alpha1.AllowedDevices{DeviceClasses: []string{"ways-own"}}
	if err := environment.Client.Status().Patch(t.Context(), status, client.MergeFrom(cluster)); err != nil {
		t.Fatal(err)
	}

	vcluster, provider := asVCluster(t, tenant), asProvider(t, tenant)
	pod := func(change func(pod *corev1.Pod, needs corev1.ResourceRequirements)) func(context.Context, string, corev1.ResourceName) error {
		return func(ctx context.Context, _ string, name corev1.ResourceName) error {
			created := hostPod(t, tenant, "ways")
			quantity := corev1.ResourceList{name: resource.MustParse("1")}
			change(created, corev1.ResourceRequirements{Limits: quantity, Requests: quantity})
			return vcluster.Create(ctx, created, client.DryRunAll)
		}
	}
	spec := func(class string) resourcev1.ResourceClaimSpec {
		return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}}
	}
	copied := metav1.ObjectMeta{Namespace: tenant, Name: "ways", Labels: map[string]string{names.MarkerLabel: tenant}}
	always := corev1.ContainerRestartPolicyAlways
	ways := map[string]way{
		"Claim": {reason: "the provider copies it, and might be another program with its token", refused: byPolicy, byName: true,
			create: func(ctx context.Context, class string, _ corev1.ResourceName) error {
				return provider.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: copied, Spec: spec(class)}, client.DryRunAll)
			}},
		"Alternative": {reason: "one of several requests", refused: byPolicy, byName: true,
			create: func(ctx context.Context, class string, _ corev1.ResourceName) error {
				claim := &resourcev1.ResourceClaim{ObjectMeta: copied, Spec: spec("ways-own")}
				claim.Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{
					{Name: "a", DeviceClassName: "ways-own"}, {Name: "b", DeviceClassName: class}}}
				return provider.Create(ctx, claim, client.DryRunAll)
			}},
		"Template": {reason: "the host makes a claim for each pod of it, and for each PodGroup", refused: byPolicy, byName: true,
			create: func(ctx context.Context, class string, _ corev1.ResourceName) error {
				return provider.Create(ctx, &resourcev1.ResourceClaimTemplate{ObjectMeta: copied,
					Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec(class)}}, client.DryRunAll)
			}},
		"Container": {reason: "as with a device plugin", refused: byWebhook,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) { pod.Spec.Containers[0].Resources = needs })},
		"Limits": {reason: "requests default to limits", refused: byWebhook,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) {
				pod.Spec.Containers[0].Resources.Limits = needs.Limits
			})},
		"SecondContainer": {reason: "any of them", refused: byWebhook,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "b", Image: "b", Resources: needs})
			})},
		"InitContainer": {reason: "it gets devices, too", refused: byWebhook,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) {
				pod.Spec.InitContainers = []corev1.Container{{Name: "b", Image: "b", Resources: needs}}
			})},
		"Sidecar": {reason: "an init container that stays", refused: byWebhook,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) {
				pod.Spec.InitContainers = []corev1.Container{{Name: "b", Image: "b", Resources: needs, RestartPolicy: &always}}
			})},
		"BesideClaims": {reason: "a claim of its own", refused: byWebhook,
			create: func(ctx context.Context, _ string, name corev1.ResourceName) error {
				created := hostPod(t, tenant, "ways", "two-gpus")
				created.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("1")}
				return vcluster.Create(ctx, created, client.DryRunAll)
			}},
		"Pod": {reason: "resources of the pod: the API server allows no extended ones, and asks the webhook first",
			refused: byWebhook, never: true,
			create: pod(func(pod *corev1.Pod, needs corev1.ResourceRequirements) { pod.Spec.Resources = &needs })},
		"Ephemeral": {reason: "an ephemeral container may have no resources",
			refused: "resources: Forbidden: cannot be set for an Ephemeral Container",
			never:   true, create: func(ctx context.Context, _ string, name corev1.ResourceName) error {
				ephemeral := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "b", Image: "b",
					ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse("1")}}}}
				return changed(ctx, t, tenant, "ephemeralcontainers", func(pod *corev1.Pod) {
					pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, ephemeral)
				})
			}},
		"Resize": {reason: "a running pod gets no other extended resources", refused: "is invalid", never: true,
			create: func(ctx context.Context, _ string, name corev1.ResourceName) error {
				return changed(ctx, t, tenant, "resize", func(pod *corev1.Pod) {
					more := corev1.ResourceList{name: resource.MustParse("1")}
					pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: more, Requests: more}
				})
			}},
	}
	poll.Eventually(t, "the webhook and the policy know the classes", func(ctx context.Context) error {
		if err := ways["Claim"].create(ctx, "ways-other", ""); err == nil || !strings.Contains(err.Error(), byPolicy) {
			return fmt.Errorf("the policy answers %v", err)
		}
		if err := ways["Container"].create(ctx, "", "ways.example.com/other"); err == nil || !strings.Contains(err.Error(), byWebhook) {
			return fmt.Errorf("the webhook answers %v", err)
		}
		return errors.Join(ways["Claim"].create(ctx, "ways-own", ""), ways["Container"].create(ctx, "", "ways.example.com/own"))
	})
	for name, way := range ways {
		for _, class := range []struct {
			name, is  string
			resources []corev1.ResourceName
			allowed   bool
		}{
			{"ways-own", "the tenant's", []corev1.ResourceName{"ways.example.com/own", prefix + "ways-own"}, true},
			{"ways-other", "of another tenant", []corev1.ResourceName{"ways.example.com/other", prefix + "ways-other"}, false},
			{"ways-none", "not there", []corev1.ResourceName{prefix + "ways-none"}, false},
		} {
			if way.byName {
				class.resources = class.resources[:1]
			}
			for _, resource := range class.resources {
				err := way.create(t.Context(), class.name, resource)
				switch allowed := class.allowed && !way.never; {
				case allowed && err != nil:
					t.Errorf("%s, for %s (%s), which is %s: %v", name, resource, way.reason, class.is, err)
				case !allowed && err == nil:
					t.Errorf("%s, for %s (%s), which is %s, is allowed", name, resource, way.reason, class.is)
				case !allowed && !class.allowed && !strings.Contains(err.Error(), way.refused):
					t.Errorf("%s, for %s (%s), which is %s: got %v, want %q", name, resource, way.reason, class.is, err, way.refused)
				}
			}
		}
	}
}

// changed changes a copy of a tenant's pod that exists by one of its subresources, as an administrator.
func changed(ctx context.Context, t *testing.T, tenant, subresource string, change func(*corev1.Pod)) error {
	t.Helper()
	pod := hostPod(t, tenant, "ways-exists")
	if err := environment.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		environment.Give(t, pod)
	}
	change(pod)
	return environment.Client.SubResource(subresource).Update(ctx, pod, client.DryRunAll)
}
