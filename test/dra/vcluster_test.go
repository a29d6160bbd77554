// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/dra/environment"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

const (
	// syncError is the reason of the events by which vCluster tells its tenant that a pod was not created on the host.
	syncError = "SyncError"
	// oneGPU is what a claim of one GPU asks for.
	oneGPU = `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu}}]}`
	// onlyA100 is what only one device of the host meets.
	onlyA100 = `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, selectors: [{cel: {expression: '` + model + `"a100"'}}]}}]}`
)

// newVCluster returns the objects of the tenant whose vCluster is real, with the device classes of the tester.
func newVCluster(t *testing.T, translation v1alpha1.PodTranslation) *tenantObjects {
	t.Helper()
	w := newTenantObjects(t).environment // it makes the device classes
	s := &tenantObjects{T: t, environment: w, tenant: w.Tenant(research)}
	spec := v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.1:6443", Sync: v1alpha1.Sync{
		FromHost: v1alpha1.SyncFromHost{
			DeviceClasses: v1alpha1.DeviceClassSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": tester}}},
			Nodes: v1alpha1.SyncSwitch{Enabled: true},
		},
		ToHost: v1alpha1.SyncToHost{
			ResourceClaims:         v1alpha1.ClaimSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}},
			ResourceClaimTemplates: v1alpha1.ClaimSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}},
			PodTranslation:         translation,
		},
	}}
	cluster := &v1alpha1.TenantCluster{}
	s.eventually("the TenantCluster is as the test needs it", func(ctx context.Context) error {
		err := w.Host.Client.Get(ctx, client.ObjectKey{Namespace: research, Name: research}, cluster)
		switch {
		case apierrors.IsNotFound(err):
			cluster = &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: research, Name: research}, Spec: spec}
			return w.Host.Client.Create(ctx, cluster)
		case err != nil:
			return err
		}
		cluster.Spec = spec // it was that of another test, or of the page
		return w.Host.Client.Update(ctx, cluster)
	})
	s.untilHasClasses()
	return s
}

// byVCluster has vCluster itself translate the claims of pods, until the test ends.
func (s *tenantObjects) byVCluster() {
	s.Helper()
	if err := s.tenant.TranslateClaims(s.Context(), true); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.tenant.TranslateClaims(context.Background(), false); err != nil {
			s.Error(err)
		}
	})
}

// translate sets what translates the claims of the tenant's pods.
func (s *tenantObjects) translate(translation v1alpha1.PodTranslation) {
	s.Helper()
	s.eventually("the TenantCluster is changed", func(ctx context.Context) error {
		cluster := &v1alpha1.TenantCluster{}
		if err := s.environment.Host.Client.Get(ctx, client.ObjectKey{Namespace: s.tenant.Name, Name: s.tenant.Name}, cluster); err != nil {
			return err
		}
		cluster.Spec.Sync.ToHost.PodTranslation = translation
		return s.environment.Host.Client.Update(ctx, cluster)
	})
}

// template makes a template of claims in the tenant.
func (s *tenantObjects) template(name, devices string) {
	s.Helper()
	s.create(fmt.Sprintf("apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: %s}\nspec:\n  spec: {devices: %s}\n",
		name, devices))
}

// untilEvent waits until an event on a pod of the tenant has such a reason and message, and returns its message.
func (s *tenantObjects) untilEvent(pod client.ObjectKey, reason, message string) string {
	s.Helper()
	var found string
	s.eventually(fmt.Sprintf("pod %s has an event %s: %s", pod, reason, message), func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := s.tenant.Client.List(ctx, list, client.InNamespace(pod.Namespace)); err != nil {
			return err
		}
		var others []string
		for _, event := range list.Items {
			if event.InvolvedObject.Name != pod.Name {
				continue
			}
			if event.Reason == reason && strings.Contains(event.Message, message) {
				found = event.Message
				return nil
			}
			others = append(others, event.Reason+": "+event.Message)
		}
		return fmt.Errorf("it has %q", others)
	})
	s.Logf("the tenant sees on pod %s: %s %s", pod.Name, reason, found)
	return found
}

// hostPod returns the copy on the host of the tenant's pod.
func (s *tenantObjects) hostPod(pod client.ObjectKey) *corev1.Pod {
	s.Helper()
	name, err := names.HostName(pod.Name, pod.Namespace, s.tenant.Name)
	if err != nil {
		s.Fatal(err)
	}
	copied := &corev1.Pod{}
	s.eventually("pod "+pod.String()+" is on the host", func(ctx context.Context) error {
		return s.environment.Host.Client.Get(ctx, client.ObjectKey{Namespace: s.tenant.Name, Name: name}, copied)
	})
	return copied
}

// short returns the name on the host of a claim or template in the tenant.
func (s *tenantObjects) short(name, namespace string) string {
	s.Helper()
	short, err := names.HostNameShort(name, namespace, s.tenant.Name)
	if err != nil {
		s.Fatal(err)
	}
	return short
}

// claimsOf returns the claims that the copy of a pod on the host refers to.
func claimsOf(pod *corev1.Pod) []string {
	var claims []string
	for _, claim := range pod.Spec.ResourceClaims {
		for _, reference := range []*string{claim.ResourceClaimName, claim.ResourceClaimTemplateName} {
			if reference != nil {
				claims = append(claims, *reference)
			}
		}
	}
	return claims
}

// untilSynced labels a pod in the tenant, and waits until the host has the label.
func (s *tenantObjects) untilSynced(pod, value string) {
	s.Helper()
	s.patch(pod, `{"metadata": {"labels": {"synced": "`+value+`"}}}`)
	s.eventually("the host has the label of pod "+pod, func(context.Context) error {
		if labels := s.hostPod(key(pod)).Labels; labels["synced"] != value {
			return fmt.Errorf("labels %v", labels)
		}
		return nil
	})
}

// patch changes a pod of the tenant.
func (s *tenantObjects) patch(pod, patch string) {
	s.Helper()
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: pod}}
	if err := s.tenant.Client.Patch(s.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// versions are the resource versions of pods, claims and templates on both sides, without one pod.
func (s *tenantObjects) versions(without string) map[string]string {
	s.Helper()
	versions := map[string]string{}
	for side, list := range map[string]func(client.ObjectList) error{
		"tenant": func(list client.ObjectList) error { return s.tenant.Client.List(s.Context(), list) },
		"host": func(list client.ObjectList) error {
			return s.environment.Host.Client.List(s.Context(), list, client.InNamespace(s.tenant.Name))
		},
	} {
		pods, claims, templates := &corev1.PodList{}, &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}
		if err := errors.Join(list(pods), list(claims), list(templates)); err != nil {
			s.Fatal(err)
		}
		for i := range pods.Items {
			if !strings.HasPrefix(pods.Items[i].Name, without) {
				versions[side+" pod "+pods.Items[i].Name] = string(pods.Items[i].UID) + " " + pods.Items[i].ResourceVersion
			}
		}
		for i := range claims.Items {
			versions[side+" claim "+claims.Items[i].Name] = string(claims.Items[i].UID) + " " + claims.Items[i].ResourceVersion
		}
		for i := range templates.Items {
			versions[side+" template "+templates.Items[i].Name] = string(templates.Items[i].UID) + " " + templates.Items[i].ResourceVersion
		}
	}
	return versions
}

// untilGenerated waits until the only claim that the tenant has for a pod with a template is that of the host's name, and the pod's status
// names it. Until then it may name the one that the tenant's own controller has made.
func (s *tenantObjects) untilGenerated(pod string) *resourcev1.ResourceClaim {
	s.Helper()
	var made []resourcev1.ResourceClaim
	s.eventually("pod "+pod+" has one claim, of the host's name", func(ctx context.Context) error {
		claims, onHost := &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaim{}
		if err := s.tenant.Client.List(ctx, claims); err != nil {
			return err
		}
		made = slices.DeleteFunc(claims.Items, func(claim resourcev1.ResourceClaim) bool {
			owner := metav1.GetControllerOf(&claim)
			return owner == nil || owner.Name != pod
		})
		if len(made) != 1 {
			return fmt.Errorf("it has %d: %v", len(made), made)
		}
		return s.environment.Host.Client.Get(ctx, client.ObjectKey{Namespace: s.tenant.Name, Name: made[0].Name}, onHost)
	})
	s.eventually("the status of pod "+pod+" names the claim of the host's name", func(ctx context.Context) error {
		object := &corev1.Pod{}
		if err := s.tenant.Client.Get(ctx, key(pod), object); err != nil {
			return err
		}
		for _, status := range object.Status.ResourceClaimStatuses {
			if ptr.Deref(status.ResourceClaimName, "") == made[0].Name {
				return nil
			}
		}
		return fmt.Errorf("it names %v", object.Status.ResourceClaimStatuses)
	})
	return &made[0]
}

// Without its settings for claims, vCluster does not translate those of pods. Without the webhook they stay Pending. With it, the tenant
// is told what is missing, and when that is mended the same pods run.
func TestVClusterDoesNotTranslate(t *testing.T) {
	system.Only(t)
	s := newVCluster(t, "")
	s.ignoreWebhook(true)
	s.claim("unasked", oneGPU)
	if diff := cmp.Diff([]string{"unasked"}, claimsOf(s.hostPod(key("unasked")))); diff != "" {
		t.Errorf("without the webhook, claims of the pod on the host, -want +got:\n%s", diff)
	}
	s.onHost("unasked")
	s.ignoreWebhook(false)

	s.claim("denied", oneGPU)
	s.template("denied", oneGPU)
	s.pod("denied-template", "resourceClaimTemplateName: denied")
	for pod, field := range map[string]string{
		"denied":          "sync.toHost.resourceClaims.enabled in the vcluster.yaml, of vCluster v0.32 or later",
		"denied-template": "sync.toHost.resourceClaimTemplates.enabled in the vcluster.yaml, of vCluster v0.32 or later",
	} {
		s.untilEvent(key(pod), syncError, field)
	}
	// It was never scheduled: no claim on the host has the name that it refers to.
	pod := &corev1.Pod{}
	if err := s.tenant.Client.Get(t.Context(), key("unasked"), pod); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending {
		t.Errorf("the pod that was not translated is %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
	}
	t.Logf("the tenant sees on pod unasked: %s, conditions %v", pod.Status.Phase, pod.Status.Conditions)
	s.translate(v1alpha1.PodTranslationWebhook)
	s.untilRunning("denied", "denied-template")
	s.deleteAll()
}

// ignoreWebhook takes the tenant's namespace out of what the host asks the webhook about, and puts it back.
func (s *tenantObjects) ignoreWebhook(ignored bool) {
	s.Helper()
	patch := `{"metadata": {"labels": {"karpenter.metal3.io/admission": null}}}`
	if ignored {
		patch = `{"metadata": {"labels": {"karpenter.metal3.io/admission": "ignore"}}}`
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant.Name}}
	if err := s.environment.Host.Client.Patch(s.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
	// The API server reads namespaces from a cache. A pod that the webhook would deny tells when it has heard.
	s.eventually("the host asks the webhook or does not, as the namespace says", func(ctx context.Context) error {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant.Name, GenerateName: "probe-",
				Labels: map[string]string{names.MarkerLabel: s.tenant.Name}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}},
				ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: ptr.To("none")}}},
		}
		err := s.environment.Host.Client.Create(ctx, probe, client.DryRunAll)
		if asked := apierrors.IsForbidden(err) || apierrors.IsInvalid(err); asked == ignored {
			return fmt.Errorf("creating a pod, it answers %v", err)
		}
		return nil
	})
}

// The pods of a vCluster that does not translate run with the webhook. vCluster does not write against it, also not after it
// was killed.
func TestVClusterWithWebhook(t *testing.T) {
	system.Only(t)
	newVCluster(t, v1alpha1.PodTranslationWebhook).checkClaims()
}

// The same of a vCluster that translates by itself, which the webhook only checks.
func TestVClusterTranslates(t *testing.T) {
	system.Only(t)
	s := newVCluster(t, v1alpha1.PodTranslationVCluster)
	s.byVCluster()
	s.checkClaims()
}

func (s *tenantObjects) checkClaims() {
	s.Helper()
	s.pod("plain", "")
	s.claim("train", `{requests: [{name: gpu, exactly: {deviceClassName: tested-gpu, count: 2, selectors: [{cel: {expression: '`+
		model+`"h100"'}}]}}]}`)
	s.template("a100", onlyA100)
	s.pod("serve", "resourceClaimTemplateName: a100")
	s.untilRunning("plain", "train", "serve")
	claim := s.untilAllocated("train", []string{"train"}, "gpu=gpu-0", "gpu=gpu-1")
	s.untilAllocated(s.untilGenerated("serve").Name, []string{"serve"}, "gpu=gpu-3")
	for pod, want := range map[string]string{"train": s.short("train", "default"), "serve": s.short("a100", "default")} {
		if diff := cmp.Diff([]string{want}, claimsOf(s.hostPod(key(pod)))); diff != "" {
			s.Errorf("claims of pod %s on the host, -want +got:\n%s", pod, diff)
		}
	}

	// vCluster still syncs what a tenant changes of a pod that the webhook has changed, and then writes no more.
	s.patch("train", `{"metadata": {"annotations": {"example.com/note": "a"}}}`)
	s.eventually("the host has the annotation of the pod", func(context.Context) error {
		if annotations := s.hostPod(key("train")).Annotations; annotations["example.com/note"] != "a" {
			return fmt.Errorf("annotations %v", annotations)
		}
		return nil
	})
	s.untilSynced("train", "1")
	s.untilSynced("plain", "1")
	before := s.versions("plain")
	for _, value := range []string{"2", "3", "4"} {
		s.untilSynced("plain", value)
	}
	if diff := cmp.Diff(before, s.versions("plain")); diff != "" {
		s.Errorf("something is still written, -before +after:\n%s", diff)
	}

	s.restartVCluster()
	s.untilSynced("train", "5")
	s.untilSynced("plain", "5")
	after := s.versions("plain")
	for object, version := range before {
		uid, _, _ := strings.Cut(version, " ")
		if now, _, _ := strings.Cut(after[object], " "); now != uid {
			s.Errorf("%s was %s, and is %s after vCluster was killed", object, uid, now)
		}
	}
	if len(after) != len(before) {
		s.Errorf("objects, before and after vCluster was killed:\n%v\n%v", before, after)
	}

	// A claim that a pod uses stays until the pod is gone.
	if err := s.tenant.Client.Delete(s.Context(), claim); err != nil {
		s.Fatal(err)
	}
	kept := s.untilAllocated("train", []string{"train"}, "gpu=gpu-0", "gpu=gpu-1")
	if kept.UID != claim.UID || kept.DeletionTimestamp.IsZero() {
		s.Errorf("claim %s deleted at %v, want %s, with a deletion timestamp", kept.UID, kept.DeletionTimestamp, claim.UID)
	}
	s.untilRunning("train")
	s.deleteAll()
}

// restartVCluster kills the tenant's vCluster, and returns when another process has taken its place.
func (s *tenantObjects) restartVCluster() {
	s.Helper()
	name := s.tenant.VClusterProcess()
	restarts := s.process(name).Restarts
	if err := s.environment.Processes().Kill(name); err != nil {
		s.Fatal(err)
	}
	s.eventually("vCluster is started again", func(context.Context) error {
		if now := s.process(name); now.Restarts != restarts+1 || now.State != process.Running {
			return fmt.Errorf("it is %s, and was started again %d times", now.State, now.Restarts)
		}
		return nil
	})
}

func (s *tenantObjects) process(name string) process.Info {
	list := s.environment.Processes().List()
	return list[slices.IndexFunc(list, func(info process.Info) bool { return info.Name == name })]
}

// Claims and templates may come after the pods that use them.
func TestVClusterPodBeforeClaim(t *testing.T) {
	system.Only(t)
	s := newVCluster(t, v1alpha1.PodTranslationWebhook)
	s.pod("early", "resourceClaimName: late")
	s.pod("early-template", "resourceClaimTemplateName: late")
	for _, pod := range []string{"early", "early-template"} {
		if copied := s.hostPod(key(pod)); copied.Spec.NodeName != "" {
			t.Errorf("pod %s is on node %s, and its claim does not exist", pod, copied.Spec.NodeName)
		}
	}
	s.create("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: late}\nspec: {devices: " + oneGPU + "}\n")
	s.template("late", oneGPU)
	s.untilRunning("early", "early-template")
	s.deleteAll()
}

// While the webhook is down, pods without claims run as ever. Those with claims wait, and the tenant is told why.
func TestVClusterWebhookDown(t *testing.T) {
	system.Only(t)
	s := newVCluster(t, v1alpha1.PodTranslationWebhook)
	if err := s.environment.Processes().Stop(environment.WebhookProcess); err != nil {
		t.Fatal(err)
	}
	s.claim("waiting", oneGPU)
	s.pod("plain", "")
	s.untilRunning("plain")
	s.untilEvent(key("waiting"), syncError, `failed calling webhook "pods.karpenter.metal3.io"`)
	if err := s.environment.Processes().StartAgain(environment.WebhookProcess); err != nil {
		t.Fatal(err)
	}
	s.untilRunning("waiting")
	// Pods do not wait for what the webhook reads, and other objects do.
	s.eventually("the webhook is ready", func(ctx context.Context) error {
		return cluster.CheckReady(ctx, s.environment.Processes(), environment.WebhookProcess)
	})
	s.deleteAll()
}

// What the webhook denies, the tenant reads. What the tenant writes of vCluster's labels and annotations is not read, and no
// name gets it the claim of another namespace.
func TestVClusterForgedPods(t *testing.T) {
	system.Only(t)
	s := newVCluster(t, v1alpha1.PodTranslationWebhook)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml"}}
	if err := s.tenant.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	s.eventually("pods can be created in namespace ml", func(ctx context.Context) error {
		return s.tenant.Client.Get(ctx, client.ObjectKey{Namespace: "ml", Name: "default"}, &corev1.ServiceAccount{})
	})
	s.create("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: secret}\nspec: {devices: " + oneGPU + "}\n")
	s.onHost("secret")
	pod := func(name, claim, metadata string) client.ObjectKey {
		s.createIn("ml", fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s%s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: registry.example.com/main:1, resources: {claims: [{name: device}]}}]
  resourceClaims: [{name: device, resourceClaimName: %s}]
`, name, metadata, claim))
		return client.ObjectKey{Namespace: "ml", Name: name}
	}
	long, err := names.HostName("secret", "default", research)
	if err != nil {
		t.Fatal(err)
	}
	s.untilEvent(pod("long", long, ""), syncError, "choose a name and a namespace")

	forged := s.hostPod(pod("forged", "secret", `,
  labels: {vcluster.loft.sh/managed-by: other, vcluster.loft.sh/namespace: default},
  annotations: {vcluster.loft.sh/object-namespace: default, vcluster.loft.sh/object-name: secret, vcluster.loft.sh/object-uid: "1",
    vcluster.loft.sh/object-host-name: forged-x-default-x-research, vcluster.loft.sh/namespace: default, vcluster.loft.sh/name: secret}`))
	short := s.hostPod(pod("short", s.short("secret", "default"), ""))
	for _, copied := range []*corev1.Pod{forged, short} {
		origin, ok := names.OriginOf(copied, names.PodKind, research)
		if !ok || origin.Namespace != "ml" {
			t.Errorf("pod %s says that it comes from %v, %v", copied.Name, origin, ok)
		}
		if slices.Contains(claimsOf(copied), s.short("secret", "default")) {
			t.Errorf("pod %s uses the claim of another namespace", copied.Name)
		}
	}
	// vCluster passes this one as the tenant wrote it, so nothing may read it.
	if got := forged.Annotations["vcluster.loft.sh/namespace"]; got != "default" {
		t.Errorf("annotation vcluster.loft.sh/namespace is %q: vCluster has changed, and the comment on rules.Pod can", got)
	}
	s.pod("owner", "resourceClaimName: secret")
	s.untilRunning("owner")
	if users := s.onHost("secret").Status.ReservedFor; len(users) != 1 || users[0].Name != "owner-x-default-x-research" {
		t.Errorf("the claim of namespace default is reserved for %v", users)
	}
	// With the mode of a vCluster that translates, which this one does not, the name passes as the tenant wrote it.
	s.translate(v1alpha1.PodTranslationVCluster)
	s.eventually("the webhook knows the mode", func(ctx context.Context) error {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: short.Namespace, Name: "probe", Labels: short.Labels},
			Spec: *short.Spec.DeepCopy()}
		probe.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("probe")
		err := s.environment.Host.Client.Create(ctx, probe, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "is not translated") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	s.untilEvent(pod("thief", s.short("secret", "default"), ""), syncError, "is not translated: set sync.toHost.resourceClaims.enabled")
	s.translate(v1alpha1.PodTranslationWebhook)
	s.deleteAll()
}

// The played syncer makes of a tenant's pod what the real one makes, with the webhook and by itself.
func TestPlayedSyncerIsLikeVCluster(t *testing.T) {
	system.Only(t)
	got := map[string]map[string]any{}
	for _, translator := range []string{"webhook", "vCluster", "played"} {
		s := newVCluster(t, v1alpha1.PodTranslationWebhook)
		switch translator {
		case "vCluster":
			s.translate(v1alpha1.PodTranslationVCluster)
			s.byVCluster()
		case "played":
			s.tenant = s.environment.Tenant(tester)
		}
		s.create("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: same}\nspec: {devices: " + onlyA100 + "}\n")
		s.template("same", oneGPU)
		s.create(`
apiVersion: v1
kind: Pod
metadata:
  name: same
  labels: {app: same, release: r1}
  annotations: {example.com/note: a}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: registry.example.com/main:1, resources: {claims: [{name: claim}, {name: template}]}}
  resourceClaims:
  - {name: claim, resourceClaimName: same}
  - {name: template, resourceClaimTemplateName: same}
`)
		s.untilRunning("same")
		s.untilGenerated("same")
		got[translator] = s.compared("same")
		s.deleteAll()
	}
	for _, translator := range []string{"webhook", "vCluster"} {
		if diff := cmp.Diff(got[translator], got["played"]); diff != "" {
			t.Errorf("a pod on the host and its status in the tenant, -%s +played:\n%s", translator, diff)
		}
	}
}

// compared is what this project reads of a pod on both sides, without what differs between two tenants.
func (s *tenantObjects) compared(name string) map[string]any {
	s.Helper()
	pod := &corev1.Pod{}
	if err := s.tenant.Client.Get(s.Context(), key(name), pod); err != nil {
		s.Fatal(err)
	}
	copied := s.hostPod(key(name))
	neutral := strings.NewReplacer(s.tenant.Name, "TENANT", string(pod.UID), "UID", s.short(name, "default"), "SHORT")
	values := func(from map[string]string) map[string]string {
		out := map[string]string{}
		for key, value := range from {
			// What vCluster needs for itself, and what is for the cluster autoscaler.
			own := strings.HasPrefix(key, "vcluster.loft.sh/token-") || strings.HasPrefix(key, "vcluster.loft.sh/ns-label-") ||
				slices.Contains([]string{"vcluster.loft.sh/labels", "vcluster.loft.sh/service-account-name",
					"cluster-autoscaler.kubernetes.io/safe-to-evict"}, key)
			if !own {
				out[neutral.Replace(key)] = neutral.Replace(value)
			}
		}
		return out
	}
	var statuses []string
	for _, status := range pod.Status.ResourceClaimStatuses {
		// The host's controller has added five characters of its own.
		claim := neutral.Replace(*status.ResourceClaimName)
		statuses = append(statuses, status.Name+"="+claim[:len(claim)-5])
	}
	return map[string]any{
		"name": neutral.Replace(copied.Name), "labels": values(copied.Labels), "annotations": values(copied.Annotations),
		"claims": strings.Split(neutral.Replace(strings.Join(claimsOf(copied), " ")), " "), "claim statuses": statuses,
		"automount": *copied.Spec.AutomountServiceAccountToken, "links": *copied.Spec.EnableServiceLinks,
		"phase": pod.Status.Phase, "finalizers": copied.Finalizers, "gates": copied.Spec.SchedulingGates,
	}
}
