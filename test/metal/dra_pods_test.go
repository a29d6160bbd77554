// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
)

// tenantsYAML has the classes on the host, of which each has other devices, and the tenants, of which each may ask for one class.
const tenantsYAML = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: training, labels: {for: research}}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index < 3'}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: serving, labels: {for: inference}}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index == 3'}}]}
---
apiVersion: karpenter.metal3.io/v1alpha1
kind: TenantCluster
metadata: {namespace: research, name: research}
spec:
  apiServerEndpoint: research.example.com:6443
  sync:
    fromHost: {deviceClasses: {enabled: true, selector: {matchLabels: {for: research}}}}
    toHost: {resourceClaims: {enabled: true}, resourceClaimTemplates: {enabled: true}, podTranslation: Webhook}
---
apiVersion: karpenter.metal3.io/v1alpha1
kind: TenantCluster
metadata: {namespace: inference, name: inference}
spec:
  apiServerEndpoint: inference.example.com:6443
  sync:
    fromHost: {deviceClasses: {enabled: true, selector: {matchLabels: {for: inference}}}}
    toHost: {resourceClaims: {enabled: true}, resourceClaimTemplates: {enabled: true}, podTranslation: Webhook}
`

// Objects of tenants.
const (
	claimYAML = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: %s, count: %d}}]}}
`
	claimTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %s}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s}}]}}}
`
	podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, args: [--environment], resources: {claims: [{name: devices}]}}
  resourceClaims: [{name: devices, %s: %s}]
`
)

// A pod of a tenant in a vCluster gets its devices from a driver on the host, by a claim and by a template; another tenant's pod
// gets others; and neither can ask for those of the other.
func TestATenantsPodGetsDevices(t *testing.T) {
	w := newHostFixture(t)
	join := bootstrap.Join{
		NodeName: nodeName, ProviderID: "none://" + nodeName, APIServerEndpoint: w.endpoint(),
		Token: joinToken(t, w.Client, nodeName, v1alpha1.JoinKubeadm),
	}
	w.bootServer(t, userData(t, join, w.CertificateAuthority(), ""))
	research, inference := w.startTenant(t, "research", 20), w.startTenant(t, "inference", 21)
	w.untilNodeReady(t, w.Client)
	w.installDriver(t)
	w.createAll(t, w.Client, "", tenantsYAML)
	for _, v := range []*tenant{research, inference} {
		v.untilReady(t)
		v.startProvider(t)
	}
	research.untilClasses(t, "training")
	inference.untilClasses(t, "serving")

	research.createDefault(t, fmt.Sprintf(claimYAML, "two-gpus", "training", 2)+"---"+fmt.Sprintf(claimTemplate, "one-gpu", "training"))
	research.createClaimer(t, "train", "resourceClaimName", "two-gpus")
	research.createClaimer(t, "serve", "resourceClaimTemplateName", "one-gpu")
	inference.createDefault(t, fmt.Sprintf(claimYAML, "two-gpus", "serving", 1))
	// The same names as in the other tenant.
	inference.createClaimer(t, "train", "resourceClaimName", "two-gpus")

	train, serve := research.devices(t, "train"), research.devices(t, "serve")
	if len(train) != 2 || len(serve) != 1 {
		t.Errorf("pod train has %v and pod serve %v, want two devices and one", train, serve)
	}
	// All that its class has.
	if got := slices.Sorted(slices.Values(append(train, serve...))); !slices.Equal(got, []string{"gpu-0", "gpu-1", "gpu-2"}) {
		t.Errorf("the pods of research have %v, want gpu-0 to gpu-2, each once", got)
	}
	if got := inference.devices(t, "train"); !slices.Equal(got, []string{"gpu-3"}) {
		t.Errorf("the pod of inference has %v, want gpu-3", got)
	}
	if prepared, err := w.preparedClaims(); err != nil || len(prepared) != 3 {
		t.Errorf("the driver has prepared the claims %v (%v), want three", prepared, err)
	}

	// vCluster's own controller makes a claim of a template as well, which no pod uses.
	research.untilClaims(t, 2)
	inference.untilClaims(t, 1)
	w.checkSeen(t, 4, "control groups", "processes")

	research.checkDenied(t, "serving")
	inference.checkDenied(t, "training")

	research.deleteAll(t)
	inference.deleteAll(t)
	w.untilCheckpointEmpty(t)
}

// createAll creates the objects of the YAML.
func (w *hostFixture) createAll(t *testing.T, c client.Client, namespace, text string) {
	t.Helper()
	for decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if namespace != "" {
			object.SetNamespace(namespace)
		}
		w.create(t, c, object)
	}
}

func (v *tenant) createDefault(t *testing.T, text string) {
	t.Helper()
	v.createAll(t, v.client, metav1.NamespaceDefault, text)
}

// createClaimer creates a pod that uses a claim or a template.
func (v *tenant) createClaimer(t *testing.T, name, source, claim string) {
	t.Helper()
	v.createDefault(t, fmt.Sprintf(podYAML, name, images.Reference(images.Workload), source, claim))
}

// untilClasses waits until the tenant has these DeviceClasses, and no others.
func (v *tenant) untilClasses(t *testing.T, want ...string) {
	t.Helper()
	v.until(t, "the DeviceClasses of tenant "+v.name, func(ctx context.Context) error {
		classes := &resourcev1.DeviceClassList{}
		if err := v.client.List(ctx, classes); err != nil {
			return err
		}
		var got []string
		for i := range classes.Items {
			got = append(got, classes.Items[i].Name)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has %v, want %v", got, want)
		}
		return nil
	})
	v.logf("tenant %s has the DeviceClasses %v", v.name, want)
}

// devices waits until the tenant's pod runs, and returns the devices that are in the environment of its container, read by the
// log through the vCluster. It fails if they are not of the pod's claim on the host.
func (v *tenant) devices(t *testing.T, name string) []string {
	t.Helper()
	environment := v.environment(t, name)
	hostName, err := names.HostName(name, metav1.NamespaceDefault, v.name)
	if err != nil {
		t.Fatal(err)
	}
	copied := &corev1.Pod{}
	if err := v.Client.Get(t.Context(), client.ObjectKey{Namespace: v.name, Name: hostName}, copied); err != nil {
		t.Fatal(err)
	}
	used := copied.Spec.ResourceClaims[0].ResourceClaimName
	if used == nil { // it was made of a template
		used = copied.Status.ResourceClaimStatuses[0].ResourceClaimName
	}
	onHost := &resourcev1.ResourceClaim{}
	if err := v.Client.Get(t.Context(), client.ObjectKey{Namespace: v.name, Name: *used}, onHost); err != nil {
		t.Fatal(err)
	}
	var given, shown []string
	for n := range devices {
		key, claimKey := fmt.Sprintf("GPU_DEVICE_%d", n), fmt.Sprintf(claimVariable, n)
		if environment[key] == "" {
			continue
		}
		given = append(given, environment[key])
		shown = append(shown, key+"="+environment[key], claimKey+"="+environment[claimKey])
		if got := environment[claimKey]; got != string(onHost.UID) {
			t.Errorf("pod %s of %s has %s by claim %q, want claim %s of the host, %s", name, v.name, environment[key], got, onHost.Name, onHost.UID)
		}
	}
	var allocated []string
	for _, result := range onHost.Status.Allocation.Devices.Results {
		allocated = append(allocated, result.Device)
	}
	slices.Sort(allocated)
	if !slices.Equal(given, allocated) {
		t.Errorf("pod %s of %s has %v, but its claim %s on the host was given %v", name, v.name, given, onHost.Name, allocated)
	}
	v.logf("pod %s of tenant %s, on the host %s with claim %s: %s", name, v.name, copied.Name, onHost.Name, strings.Join(shown, " "))
	return given
}

// environment returns the environment of a container, which it logs.
func (v *tenant) environment(t *testing.T, name string) map[string]string {
	t.Helper()
	environment := map[string]string{}
	for line := range strings.Lines(v.podLog(t, v.kube, name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		environment[key] = value
	}
	return environment
}

// untilClaims waits until the tenant has that many claims, and each is allocated, and used by a pod.
func (v *tenant) untilClaims(t *testing.T, want int) {
	t.Helper()
	var shown []string
	v.until(t, "the claims of tenant "+v.name, func(ctx context.Context) error {
		list := &resourcev1.ResourceClaimList{}
		if err := v.client.List(ctx, list); err != nil {
			return err
		}
		shown = nil
		for i := range list.Items {
			status := list.Items[i].Status
			if status.Allocation == nil || len(status.ReservedFor) != 1 {
				return fmt.Errorf("claim %s is not allocated and used", list.Items[i].Name)
			}
			shown = append(shown, list.Items[i].Name+" used by "+status.ReservedFor[0].Name)
		}
		if len(shown) != want {
			return fmt.Errorf("it has %v, want %d", shown, want)
		}
		return nil
	})
	v.logf("tenant %s sees the claims %s", v.name, strings.Join(shown, ", "))
}

// checkDenied fails if the tenant can ask for devices of a class of another tenant, or is not told why.
func (v *tenant) checkDenied(t *testing.T, class string) {
	t.Helper()
	v.createDefault(t, fmt.Sprintf(claimYAML, "greedy", class, 1))
	v.createClaimer(t, "greedy", "resourceClaimName", "greedy")
	v.until(t, "tenant "+v.name+" to be told that it cannot ask for "+class, func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := v.client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for i := range events.Items {
			event := &events.Items[i]
			if event.InvolvedObject.Kind == "ResourceClaim" && event.InvolvedObject.Name == "greedy" && event.Reason == claims.ReasonSyncWarning &&
				strings.HasPrefix(event.Message, claims.ReasonClassNotAllowed+": ") {
				v.logf("tenant %s sees the event %s: %s", v.name, event.Reason, event.Message)
				return nil
			}
		}
		return fmt.Errorf("none of its %d events says so", len(events.Items))
	})
	hostName, err := names.HostNameShort("greedy", metav1.NamespaceDefault, v.name)
	if err != nil {
		t.Fatal(err)
	}
	err = v.Client.Get(t.Context(), client.ObjectKey{Namespace: v.name, Name: hostName}, &resourcev1.ResourceClaim{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the host has claim %s of tenant %s (%v), which asks for another tenant's devices", hostName, v.name, err)
	}
	pod := &corev1.Pod{}
	if err := v.client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "greedy"}, pod); err != nil {
		t.Fatal(err)
	}
	if pod.Status.Phase != corev1.PodPending {
		t.Errorf("pod greedy of tenant %s is %s, want Pending", v.name, pod.Status.Phase)
	}
}

// deleteAll deletes the tenant's pods, claims and templates, and waits until both sides are empty.
func (v *tenant) deleteAll(t *testing.T) {
	t.Helper()
	in := client.InNamespace(metav1.NamespaceDefault)
	for _, kind := range []client.Object{&corev1.Pod{}, &resourcev1.ResourceClaim{}, &resourcev1.ResourceClaimTemplate{}} {
		if err := v.client.DeleteAllOf(t.Context(), kind, in); err != nil {
			t.Fatal(err)
		}
	}
	v.until(t, "both sides of tenant "+v.name+" to be empty", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{}} {
			for side, err := range map[string]error{
				"the tenant": v.client.List(ctx, list, in), "the host": v.Client.List(ctx, list, client.InNamespace(v.name)),
			} {
				if err != nil {
					return err
				}
				if n := meta.LenList(list); n > 0 {
					return fmt.Errorf("%s has %d of %T", side, n, list)
				}
			}
		}
		return nil
	})
	v.logf("tenant %s and its namespace on the host have no pods, claims and templates", v.name)
}
