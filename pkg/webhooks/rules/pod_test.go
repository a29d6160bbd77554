// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// hostPod is the copy that vCluster makes of a tenant's pod, in the namespace and for the tenant research.
func hostPod(t testing.TB, name, namespace string, claims ...corev1.PodResourceClaim) *corev1.Pod {
	t.Helper()
	onHost, err := names.HostName(name, namespace, "research")
	if err != nil {
		onHost = name + "-x-" + namespace + "-x-research" // vCluster does not refuse what is ambiguous
	}
	key := client.ObjectKey{Namespace: "research", Name: onHost}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u1"}}
	metadata := names.HostMetadata(pod, names.PodKind, key, "research", names.Metadata{})
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: metadata.Labels, Annotations: metadata.Annotations},
		Spec:       corev1.PodSpec{ResourceClaims: claims},
	}
}

func claimOf(name string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "c", ResourceClaimName: &name}
}

func templateOf(name string) corev1.PodResourceClaim {
	return corev1.PodResourceClaim{Name: "t", ResourceClaimTemplateName: &name}
}

// short is the name on the host of a claim or template of research.
func short(t testing.TB, name, namespace string) string {
	t.Helper()
	onHost, err := names.HostNameShort(name, namespace, "research")
	if err != nil {
		t.Fatal(err)
	}
	return onHost
}

// hostClaim is the copy of a claim of research.
func hostClaim(t testing.TB, name, namespace string) *metav1.PartialObjectMetadata {
	t.Helper()
	key := client.ObjectKey{Namespace: "research", Name: short(t, name, namespace)}
	claim := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u2"}}
	metadata := names.HostMetadata(claim, names.ClaimKind, key, "research", names.Metadata{})
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: metadata.Labels,
		Annotations: metadata.Annotations}}
}

// platforms is a claim that is no copy.
func platforms(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "research", Name: name}}
}

// fakeHost has claims and templates by name, device classes, and a number of claims that count.
type fakeHost struct {
	claims  []client.Object
	classes []resourcev1.DeviceClass
	count   int
}

func (h fakeHost) Claim(kind schema.GroupVersionKind, name string) client.Object {
	for _, claim := range h.claims {
		if kind == names.ClaimKind && claim.GetName() == name {
			return claim
		}
	}
	return nil
}

func (h fakeHost) DeviceClasses() []resourcev1.DeviceClass { return h.classes }

func (h fakeHost) Claims(string) int { return h.count }

// referred are the names in the claims of a pod.
func referred(pod *corev1.Pod) []string {
	var all []string
	for _, claim := range pod.Spec.ResourceClaims {
		for _, name := range []*string{claim.ResourceClaimName, claim.ResourceClaimTemplateName} {
			if name != nil {
				all = append(all, *name)
			}
		}
	}
	return all
}

func research(t testing.TB, sync string) *v1alpha1.TenantCluster {
	t.Helper()
	return parse[v1alpha1.TenantCluster](t, "{metadata: {namespace: research, name: research}, "+
		"spec: {apiServerEndpoint: 'a:1', sync: {"+sync+"}}}")
}

const (
	bothKinds   = "resourceClaims: {enabled: true}, resourceClaimTemplates: {enabled: true}"
	byVCluster  = "toHost: {" + bothKinds + "}"
	byVCluster2 = "toHost: {podTranslation: VCluster, " + bothKinds + "}"
	byWebhook   = "toHost: {podTranslation: Webhook, " + bothKinds + "}"
)

func TestPod(t *testing.T) {
	const notACopy = "it has the label vcluster.loft.sh/managed-by, and not the name and the annotations vcluster.loft.sh/object-* of a copy"
	gpu := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := hostPod(t, "train", "ml", claimOf("gpu"))
		change(pod)
		return pod
	}
	annotated := func(key, value string) *corev1.Pod {
		return gpu(func(pod *corev1.Pod) { pod.Annotations[key] = value })
	}
	for name, tc := range map[string]struct {
		reason string
		sync   string // "none" for no TenantCluster
		pod    *corev1.Pod
		onHost []client.Object // claims
		names  []string        // on the host; nil for those that were given
		says   []string
	}{
		"NoTenantCluster": {reason: "another's vCluster", sync: "none", pod: hostPod(t, "train", "ml", claimOf("gpu"))},
		"NoSync":          {reason: "a vCluster that syncs claims itself", sync: "", pod: hostPod(t, "train", "ml", claimOf("gpu"))},
		"NoSyncButMode": {reason: "the mode alone syncs nothing", sync: "toHost: {podTranslation: Webhook}",
			pod: hostPod(t, "train", "ml", claimOf("gpu"))},

		"Claim": {reason: "the webhook translates", sync: byWebhook, pod: hostPod(t, "train", "ml", claimOf("gpu")),
			names: []string{short(t, "gpu", "ml")}},
		"Template": {reason: "the webhook translates", sync: byWebhook, pod: hostPod(t, "train", "ml", templateOf("gpu")),
			names: []string{short(t, "gpu", "ml")}},
		"Several": {reason: "two claims and a template, each by itself", sync: byWebhook,
			pod:   hostPod(t, "train", "ml", claimOf("a"), templateOf("b"), claimOf("c")),
			names: []string{short(t, "a", "ml"), short(t, "b", "ml"), short(t, "c", "ml")}},
		"Neither": {reason: "the API server refuses it", sync: byWebhook,
			pod: hostPod(t, "train", "ml", corev1.PodResourceClaim{Name: "c"})},
		"LongPodName": {reason: "its name on the host is hashed", sync: byWebhook,
			pod: hostPod(t, strings.Repeat("train", 12), "ml", claimOf("gpu")), names: []string{short(t, "gpu", "ml")}},
		"TranslatedTwice": {reason: "a tenant may give a claim such a name, so it cannot be denied", sync: byWebhook,
			pod: hostPod(t, "train", "ml", claimOf(short(t, "gpu", "ml"))), names: []string{short(t, short(t, "gpu", "ml"), "ml")},
			says: []string{"warning: spec.resourceClaims[0].resourceClaimName: " + short(t, "gpu", "ml") + " looks translated already: if it " +
				"is, the pod stays Pending until spec.sync.toHost.podTranslation of TenantCluster research/research is VCluster"}},

		"LongNameOfAnotherNamespace": {reason: "case J: the host name of default's claim", sync: byWebhook,
			pod: hostPod(t, "train", "ml", claimOf("secret-gpu-x-default-x-research")),
			says: []string{`spec.resourceClaims[0].resourceClaimName: Invalid value: "secret-gpu-x-default-x-research": ` +
				`the name on the host is made of`}},
		"ShortNameOfAnotherNamespace": {reason: "case J: it becomes the name of a claim of ml", sync: byWebhook,
			pod: hostPod(t, "train", "ml", claimOf(short(t, "gpu", "default"))), names: []string{short(t, short(t, "gpu", "default"), "ml")},
			says: []string{"warning: "}},
		"PlatformsClaim": {reason: "a claim that the platform has in the namespace", sync: byWebhook,
			pod: hostPod(t, "train", "ml", claimOf("platform")), names: []string{short(t, "platform", "ml")}},
		"AmbiguousTemplate": {reason: "a-x-b in ml is a in b-x-ml", sync: byWebhook,
			pod:  hostPod(t, "train", "ml", claimOf("gpu"), templateOf("a-x-b")),
			says: []string{`spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "a-x-b": the name on the host is made of`}},
		"EmptyName": {reason: "the API server would refuse it, but what it is translated to is valid", sync: byWebhook,
			pod: hostPod(t, "train", "ml", claimOf("")), says: []string{`resourceClaimName: Invalid value: "": name ""`}},
		"AmbiguousPod": {reason: "its annotations could be of another pod", sync: byWebhook,
			pod:  hostPod(t, "model-x-large", "ml", claimOf("gpu")),
			says: []string{notACopy}},

		"ForgedPlainName": {reason: "case I: a tenant writes what only old vClusters read", sync: byWebhook,
			pod: annotated("vcluster.loft.sh/name", "other"), names: []string{short(t, "gpu", "ml")}},
		"ForgedPlainNamespace": {reason: "case I: a tenant writes what only old vClusters read", sync: byWebhook,
			pod: annotated("vcluster.loft.sh/namespace", "default"), names: []string{short(t, "gpu", "ml")}},
		"ForgedPlainUID": {reason: "case I: a tenant writes what only old vClusters read", sync: byWebhook,
			pod: annotated("vcluster.loft.sh/uid", "u2"), names: []string{short(t, "gpu", "ml")}},
		"ForgedNamespaceLabel": {reason: "case I", sync: byWebhook,
			pod:   gpu(func(pod *corev1.Pod) { pod.Labels[names.NamespaceLabel] = "default" }),
			names: []string{short(t, "gpu", "ml")}},
		"ForgedName": {reason: "the name on the host is another's", sync: byWebhook,
			pod: annotated(names.NameAnnotation, "x"), says: []string{notACopy}},
		"ForgedNamespace": {reason: "default's claim", sync: byWebhook,
			pod: annotated(names.NamespaceAnnotation, "default"), says: []string{notACopy}},
		"ForgedKind": {reason: "not a pod", sync: byWebhook,
			pod: annotated(names.KindAnnotation, "v1, Kind=Secret"), says: []string{notACopy}},
		"ForgedHostName": {reason: "of another copy", sync: byWebhook,
			pod: annotated(names.HostNameAnnotation, "x"), says: []string{notACopy}},
		"ForgedHostNamespace": {reason: "of another copy", sync: byWebhook,
			pod: annotated(names.HostNamespaceAnnotation, "x"), says: []string{notACopy}},
		"ForgedUID": {reason: "of no pod", sync: byWebhook,
			pod: annotated(names.UIDAnnotation, ""), says: []string{notACopy}},
		"OtherTenantsLabel": {reason: "the TenantCluster is looked up by the label", sync: byWebhook,
			pod: gpu(func(pod *corev1.Pod) { pod.Labels[names.MarkerLabel] = "inference" }), says: []string{notACopy}},
		"NoAnnotations": {reason: "it is no copy", sync: byWebhook, pod: gpu(func(pod *corev1.Pod) { pod.Annotations = nil }),
			says: []string{notACopy}},
		"MovedName": {reason: "the annotations of another pod", sync: byWebhook,
			pod:  gpu(func(pod *corev1.Pod) { pod.Name = "other" }),
			says: []string{notACopy}},
		"GeneratedName": {reason: "vCluster generates none", sync: byWebhook,
			pod:  gpu(func(pod *corev1.Pod) { pod.Name, pod.GenerateName = "", "train-" }),
			says: []string{notACopy}},

		"ClaimsOff": {reason: "the tenant's word is no name on the host",
			sync: "toHost: {podTranslation: Webhook, resourceClaimTemplates: {enabled: true}}",
			pod:  hostPod(t, "train", "ml", claimOf("gpu"), templateOf("gpu")),
			says: []string{`spec.resourceClaims[0].resourceClaimName: Invalid value: "gpu": is not synced to the host: set ` +
				`spec.sync.toHost.resourceClaims.enabled of TenantCluster research/research`}},
		"TemplatesOff": {reason: "the tenant's word is no name on the host",
			sync: "toHost: {podTranslation: Webhook, resourceClaims: {enabled: true}}",
			pod:  hostPod(t, "train", "ml", claimOf("gpu"), templateOf("gpu")),
			says: []string{`spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "gpu": is not synced to the host: set ` +
				`spec.sync.toHost.resourceClaimTemplates.enabled of TenantCluster research/research`}},
		"ClassesOnly": {reason: "the sync is on, claims are not",
			sync: "toHost: {podTranslation: Webhook}, fromHost: {deviceClasses: {enabled: true}}",
			pod:  hostPod(t, "train", "ml", claimOf("gpu")), says: []string{"is not synced to the host"}},

		"Translated": {reason: "vCluster has done it", sync: byVCluster,
			pod: hostPod(t, "train", "ml", claimOf(short(t, "a", "ml")), templateOf(short(t, "b", "ml")))},
		"TranslatedExplicit": {reason: "the default, in words", sync: byVCluster2,
			pod: hostPod(t, "train", "ml", claimOf(short(t, "a", "ml")))},
		"TranslatedAmbiguousPod": {reason: "the origin decides nothing here", sync: byVCluster,
			pod: hostPod(t, "model-x-large", "ml", claimOf(short(t, "a", "ml")))},
		"TranslatedClaimsOff": {reason: "vCluster's own sync may be on", sync: "fromHost: {deviceClasses: {enabled: true}}",
			pod: hostPod(t, "train", "ml", claimOf(short(t, "a", "ml")))},
		"TranslatedAfterClaim": {reason: "the claim is there", sync: byVCluster, onHost: []client.Object{hostClaim(t, "a", "ml")},
			pod: hostPod(t, "train", "ml", claimOf(short(t, "a", "ml")))},
		"TranslatedOwnSync": {reason: "what vCluster's own sync writes is not known", sync: "fromHost: {deviceClasses: {enabled: true}}",
			onHost: []client.Object{platforms(short(t, "a", "ml"))}, pod: hostPod(t, "train", "ml", claimOf(short(t, "a", "ml")))},
		"ShortNameOfAnother": {reason: "an old vCluster, and the short name of default's claim", sync: byVCluster,
			onHost: []client.Object{hostClaim(t, "gpu", "default")}, pod: hostPod(t, "train", "ml", claimOf(short(t, "gpu", "default"))),
			says: []string{"is not translated: set sync.toHost.resourceClaims.enabled in the vcluster.yaml"}},
		"ShortNameOfThePlatforms": {reason: "an old vCluster, and a claim that is no copy", sync: byVCluster,
			onHost: []client.Object{platforms("validationset1")}, pod: hostPod(t, "train", "ml", claimOf("validationset1")),
			says: []string{"is not translated"}},
		"NotTranslated": {reason: "an old vCluster", sync: byVCluster,
			pod: hostPod(t, "train", "ml", claimOf("gpu"), templateOf("tpu")),
			says: []string{`spec.resourceClaims[0].resourceClaimName: Invalid value: "gpu": is not translated: set ` +
				`sync.toHost.resourceClaims.enabled in the vcluster.yaml, of vCluster v0.32 or later, ` +
				`or set spec.sync.toHost.podTranslation of TenantCluster research/research to Webhook`,
				`spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "tpu": is not translated: set ` +
					`sync.toHost.resourceClaimTemplates.enabled in the vcluster.yaml`}},
		"HalfTranslated": {reason: "one of vCluster's two settings", sync: byVCluster,
			pod:  hostPod(t, "train", "ml", claimOf(short(t, "gpu", "ml")), templateOf("tpu")),
			says: []string{`spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "tpu": is not translated`}},
		"NotTranslatedLong": {reason: "case J: the long host name of default's claim", sync: byVCluster,
			pod: hostPod(t, "train", "ml", claimOf("secret-gpu-x-default-x-research")), says: []string{"is not translated"}},
		"NotTranslatedOff": {reason: "it is not synced either", sync: "toHost: {resourceClaims: {enabled: true}}",
			pod:  hostPod(t, "train", "ml", templateOf("gpu")),
			says: []string{"is not synced to the host: set spec.sync.toHost.resourceClaimTemplates.enabled"}},
		"NotTranslatedEmpty": {reason: "no name", sync: byVCluster,
			pod: hostPod(t, "train", "ml", claimOf("")), says: []string{"is not translated"}},
	} {
		t.Run(name, func(t *testing.T) {
			var tenant *v1alpha1.TenantCluster
			if tc.sync != "none" {
				tenant = research(t, tc.sync)
			}
			want := tc.pod.DeepCopy()
			if tc.names == nil {
				tc.names = referred(tc.pod)
			}
			result := Pod(tenant, tc.pod, nil, fakeHost{claims: tc.onHost})
			mentions(t, tc.reason, result, tc.says...)
			if !result.Allowed() {
				return
			}
			if diff := cmp.Diff(tc.names, referred(tc.pod)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			tc.pod.Spec.ResourceClaims, want.Spec.ResourceClaims = nil, nil
			if diff := cmp.Diff(want, tc.pod); diff != "" {
				t.Errorf("more than the claims has changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodStaysInItsNamespace: whatever a tenant writes into its pods and whatever its pods, namespaces and claims are called, a
// pod that is translated refers to a name that claims of its own namespace alone have.
func TestPodStaysInItsNamespace(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		checkPods(t, seed)
	}
}

func FuzzPod(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkPods)
}

// checkPods makes a tenant with some namespaces, claims and pods, at random.
func checkPods(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	name := func() string {
		parts := []string{pick("a", "b", "ml", "gpu", "x", "default", "research")}
		for random.IntN(3) > 0 {
			parts = append(parts, pick("a", "x", "ml", "research", strings.Repeat("l", 40)))
		}
		return strings.Join(parts, pick("-", "-x-", ""))
	}
	var namespaces, written []string
	owners := map[string]string{"platform": "the platform"} // of names on the host
	for range 2 + random.IntN(4) {
		namespaces = append(namespaces, name())
	}
	for range 20 {
		claim, namespace := name(), pick(namespaces...)
		written = append(written, claim)
		// Those that are not ambiguous are synced.
		if onHost, err := names.HostNameShort(claim, namespace, "research"); err == nil {
			if owner := owners[onHost]; owner != "" && owner != namespace {
				t.Fatalf("seed %d: %s and %s have the same name on the host", seed, owner, namespace)
			}
			owners[onHost] = namespace
		}
	}
	for onHost, owner := range owners {
		written = append(written, onHost, onHost+"-x-"+owner+"-x-research")
	}
	slices.Sort(written)
	for range 20 {
		namespace := pick(namespaces...)
		pod := hostPod(t, name(), namespace)
		for range 1 + random.IntN(3) {
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
				[]corev1.PodResourceClaim{claimOf(pick(written...)), templateOf(pick(written...))}[random.IntN(2)])
		}
		// What vCluster does not overwrite.
		for range random.IntN(3) {
			pod.Annotations[pick("vcluster.loft.sh/name", "vcluster.loft.sh/namespace", "vcluster.loft.sh/uid", "a")] = pick(namespaces...)
			pod.Labels[pick("app", "vcluster.loft.sh/controlled-by")] = pick(namespaces...)
		}
		given := referred(pod)
		result := Pod(research(t, byWebhook), pod, nil, fakeHost{})
		checkResult(t, result)
		if !result.Allowed() {
			continue
		}
		for i, onHost := range referred(pod) {
			if owner, is := owners[onHost]; is && owner != namespace {
				t.Fatalf("seed %d: a pod of %s that names %s has a claim of %s", seed, namespace, given[i], owner)
			}
			if want := ptr.To(short(t, given[i], namespace)); onHost != *want {
				t.Fatalf("seed %d: %s of %s became %s, want %s", seed, given[i], namespace, onHost, *want)
			}
		}
	}
}

// A pod with as many claims as a request can hold gets an answer that can be sent.
func TestPodOfManyClaims(t *testing.T) {
	pod := hostPod(t, "train", "ml")
	for i := range 10_000 {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, claimOf(fmt.Sprint("a-x-", i)), templateOf("v0123456789abc"))
	}
	for _, sync := range []string{byWebhook, byVCluster} {
		checkResult(t, Pod(research(t, sync), pod.DeepCopy(), nil, fakeHost{}))
	}
}

func TestPodTranslationWithoutSync(t *testing.T) {
	for sync, warns := range map[string]bool{
		"":                                  false,
		"toHost: {podTranslation: Webhook}": true,
		"toHost: {podTranslation: VCluster}, fromHost: {deviceClasses: {enabled: true}}":                                         true,
		"toHost: {podTranslation: Webhook, resourceClaims: {enabled: true}}, fromHost: {deviceClasses: {enabled: true}}":         false,
		"toHost: {podTranslation: Webhook, resourceClaimTemplates: {enabled: true}}, fromHost: {deviceClasses: {enabled: true}}": false,
	} {
		result := TenantCluster(newCluster(t), nil, research(t, sync))
		output := strings.Join(linesOf(result), "\n")
		if got := strings.Contains(output, "spec.sync.toHost.podTranslation: no claim is synced to the host"); got != warns || !result.Allowed() {
			t.Errorf("with %q: %s", sync, output)
		}
	}
}

// classOf is a class of the host. labels select it; resource is its spec.extendedResourceName, empty for none.
func classOf(name, accelerator, resource string) resourcev1.DeviceClass {
	class := resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"accelerator": accelerator}}}
	if resource != "" {
		class.Spec.ExtendedResourceName = &resource
	}
	return class
}

// TestPodResources: kube-scheduler makes a claim for a resource that a class serves, and asks nobody whether the tenant may have the class.
func TestPodResources(t *testing.T) {
	const (
		slices = "fromHost: {deviceClasses: {enabled: true, selector: {matchLabels: {accelerator: slice}}}}"
		all    = "fromHost: {deviceClasses: {enabled: true}}"
		prefix = corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix)
	)
	deleted := classOf("mig-gone", "slice", "")
	deleted.DeletionTimestamp = &metav1.Time{}
	deleted.DeletionTimestamp.Time = deleted.DeletionTimestamp.AddDate(2026, 1, 1)
	classes := []resourcev1.DeviceClass{classOf("whole-gpu", "whole", "example.com/gpu"), classOf("mig", "slice", "example.com/mig"),
		classOf("old", "slice", "example.com/both"), classOf("new", "whole", "example.com/both"), deleted}
	for name, tc := range map[string]struct {
		reason, sync string
		asked        []corev1.ResourceName
		claims       int
		says         []string
	}{
		"NoTenantCluster": {reason: "another's vCluster", sync: "none", asked: []corev1.ResourceName{prefix + "whole-gpu"}},
		"Plain":           {reason: "no class serves it", sync: slices, asked: []corev1.ResourceName{"cpu", "rdma/hca", "example.com/fpga"}},
		"ByName":          {reason: "the class is the tenant's", sync: slices, asked: []corev1.ResourceName{prefix + "mig"}},
		"ByResource":      {reason: "the class is the tenant's", sync: slices, asked: []corev1.ResourceName{"example.com/mig"}},
		"Every": {reason: "all classes are the tenant's", sync: all,
			asked: []corev1.ResourceName{"example.com/both", prefix + "whole-gpu"}},
		"OthersByName": {reason: "the class is not the tenant's", sync: slices, asked: []corev1.ResourceName{prefix + "whole-gpu"},
			says: []string{`spec.containers[0].resources.limits[deviceclass.resource.kubernetes.io/whole-gpu]: Forbidden: Device class whole-gpu ` +
				`does not match the selector under 'sync.fromHost.deviceClasses.selector' (accelerator=slice)`}},
		"OthersByResource": {reason: "the class is not the tenant's, and its name is not told", sync: slices,
			asked: []corev1.ResourceName{"example.com/gpu"}, says: []string{`spec.containers[0].resources.limits[example.com/gpu]: Forbidden: ` +
				`A device class of the host serves example.com/gpu, and 'sync.fromHost.deviceClasses' does not give it to this cluster`}},
		"OneOfTwo": {reason: "kube-scheduler takes the newer class", sync: slices, asked: []corev1.ResourceName{"example.com/both"},
			says: []string{"A device class of the host serves example.com/both"}},
		"None": {reason: "the class may be there later", sync: slices, asked: []corev1.ResourceName{prefix + "none"},
			says: []string{"Device class none"}},
		"Deleted": {reason: "the tenant does not see it any more", sync: slices, asked: []corev1.ResourceName{prefix + "mig-gone"},
			says: []string{"mig-gone"}},
		"NoSync": {reason: "no class is the tenant's", sync: "", asked: []corev1.ResourceName{prefix + "mig", "example.com/mig"},
			says: []string{"Device class mig is not available: 'sync.fromHost.deviceClasses' is not enabled", "serves example.com/mig"}},
		"Room": {reason: "one claim less than the limit", sync: slices, asked: []corev1.ResourceName{"example.com/mig"}, claims: 999},
		"TooMany": {reason: "the limit counts what kube-scheduler makes", sync: slices, claims: 1000,
			asked: []corev1.ResourceName{"example.com/mig"},
			says:  []string{"this cluster has 1000 claims on the host, as many as it may have"}},
		"Limit": {reason: "the platform's limit", sync: slices + ", toHost: {resourceClaims: {enabled: true, max: 3}}",

			asked: []corev1.ResourceName{"example.com/mig"}, claims: 3,
			says: []string{"has 3 claims on the host, as many as it may have: delete some, or ask " +
				"the platform's administrator for a higher 'sync.toHost.resourceClaims.max'"}},
		"NotCounted": {reason: "kube-scheduler makes no claim", sync: slices, asked: []corev1.ResourceName{"example.com/fpga"}, claims: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			var tenant *v1alpha1.TenantCluster
			if tc.sync != "none" {
				tenant = research(t, tc.sync)
			}
			asked := Asked{}
			for _, resource := range tc.asked {
				asked.Add(resource, field.NewPath("spec", "containers").Index(0).Child("resources", "limits"))
			}
			result := Pod(tenant, hostPod(t, "train", "ml"), asked, fakeHost{classes: classes, count: tc.claims})
			mentions(t, tc.reason, result, tc.says...)
		})
	}
}
