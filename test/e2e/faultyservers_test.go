// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	// demoHangs is a server on which Metal3's demo mode never gets done with writing an image.
	demoHangs = "demo-provisioning"
	// demoFails is one on which it fails to.
	demoFails = "demo-validation-error"

	faultyLabel = "e2e-faulty"
)

// faulty returns a server that has the fault when it is installed, until createFaultyPool gives it back: one of Metal3's demo mode on a
// sandbox, elsewhere one of the rack.
func (w *fixture) faulty(t *testing.T, demo, server string, kind faults.Kind) string {
	t.Helper()
	w.needsFaults(t)
	if w.sandbox != nil {
		return demo
	}
	w.askRack(t, http.MethodPut, server+"/faults/"+string(kind))
	return server
}

// mend takes the fault off a server.
func (w *fixture) mend(t *testing.T, server string) {
	t.Helper()
	if w.sandbox == nil {
		w.askRack(t, http.MethodDelete, server+"/faults")
	}
}

func (w *fixture) askRack(t *testing.T, method, path string) {
	t.Helper()
	url := strings.TrimSuffix(w.settings.rack, "/") + "/v1/servers/" + path
	request, err := http.NewRequestWithContext(context.Background(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("asking the rack that %s names, %v", rackVariable, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the rack that %s names refuses %s %s, %s", rackVariable, method, url, response.Status)
	}
}

// createFaultyPool gives the tenant a NodePool with a NodeType of its own name, of which the servers are those that are named:
// some of the fleet, and others that Metal3 has trouble with and that never boot. It all goes at the end of the test.
func (w *fixture) createFaultyPool(t *testing.T, name string, change func(*v1alpha1.HardwareProfile), servers ...string) {
	t.Helper()
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
	provider.Spec.Properties = w.fleetProperties(t)
	provider.Spec.Metal3.ClusterRef.Namespace = hostNamespace
	profile := v1alpha1.HardwareProfile{Zone: "us-east-1", Resources: resources("cpu", "32", "memory", "128Gi")}
	profile.BareMetalHosts = &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{faultyLabel: name}}}
	change(&profile)
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: name, HardwareProfile: profile}}
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.ProviderRef = &v1alpha1.NameReference{Name: name}
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: name}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
	}
	pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("5s")
	t.Cleanup(func() {
		w.releaseFaulty(t, name, servers)
		for _, object := range []struct {
			cluster client.Client
			object  client.Object
		}{{w.tenant, pool}, {w.tenant, class}, {w.management, provider}} {
			w.remove(t, object.cluster, object.object)
		}
	})
	for _, server := range servers {
		w.addServer(t, server, name)
	}
	for _, object := range []struct {
		cluster client.Client
		object  client.Object
	}{{w.management, provider}, {w.tenant, class}, {w.tenant, pool}} {
		if err := object.cluster.Create(t.Context(), object.object); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually(t, "NodePool "+name+" and its servers are ready", func(ctx context.Context) (string, error) {
		nodeType, ready := &v1alpha1.NodeType{}, &karpv1.NodePool{}
		if err := w.management.Get(ctx, client.ObjectKey{Name: name}, nodeType); err != nil {
			return "there is no NodeType", client.IgnoreNotFound(err)
		}
		if available := nodeType.Status.Capacity.Available; int(available) != len(servers) {
			return fmt.Sprintf("%d of %d are available", available, len(servers)), nil
		}
		if err := w.tenant.Get(ctx, client.ObjectKey{Name: name}, ready); err != nil || !ready.StatusConditions().Root().IsTrue() {
			return "the NodePool is not ready", err
		}
		return "", nil
	})
}

// addServer makes a server one of the pool's, and registers it with Metal3 if it is none of the fleet.
func (w *fixture) addServer(t *testing.T, server, pool string) {
	t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	key := client.ObjectKey{Namespace: hostNamespace, Name: server}
	if err := w.management.Get(t.Context(), key, host); err == nil {
		before := host.DeepCopy()
		host.Labels[faultyLabel] = pool
		if err := w.management.Patch(t.Context(), host, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		return
	} else if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: server + "-bmc"},
		Data:       map[string][]byte{"username": []byte("sandbox"), "password": []byte("sandbox")},
	}
	host = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: server,
		Labels: map[string]string{faultyLabel: pool}}}
	host.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/" + server, CredentialsName: secret.Name}
	host.Spec.BootMACAddress, host.Spec.InspectionMode = "52:54:00:ff:ff:01", bmov1alpha1.InspectionModeDisabled
	for _, object := range []client.Object{secret, host} {
		if err := w.management.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// releaseFaulty empties the pool and takes the servers away that are none of the fleet.
func (w *fixture) releaseFaulty(t *testing.T, pool string, servers []string) {
	t.Helper()
	ctx, cancel := poll.WithPatience(context.Background())
	defer cancel()
	for _, server := range servers {
		w.mend(t, server) // or Metal3 could not clean it
	}
	w.deleteAll(ctx, t)
	if err := poll.Await(ctx, "the servers of pool "+pool+" are given back", func(ctx context.Context) error {
		machines, err := w.machines(ctx)
		if err != nil || len(machines) == 0 {
			return err
		}
		return errors.Join(fmt.Errorf("%d Machines are left", len(machines)), w.forgetErrors(ctx, servers))
	}); err != nil {
		t.Error(err)
	}
	for _, server := range servers {
		host := &bmov1alpha1.BareMetalHost{}
		if err := w.management.Get(ctx, client.ObjectKey{Namespace: hostNamespace, Name: server}, host); err != nil {
			t.Error(err)
			continue
		}
		before := host.DeepCopy()
		delete(host.Labels, faultyLabel)
		delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey)
		if strings.HasPrefix(server, "demo-") {
			// Metal3's demo mode takes minutes to let go of a host, and there is nothing behind it.
			host.Finalizers = nil
			if err := w.management.Delete(ctx, host.DeepCopy()); err != nil {
				t.Error(err)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: server + "-bmc"}}
			if err := w.management.Delete(ctx, secret); err != nil {
				t.Error(err)
			}
		}
		if err := client.IgnoreNotFound(w.management.Patch(ctx, host, client.MergeFrom(before))); err != nil {
			t.Error(err)
		}
	}
}

// forgetErrors takes errors off servers that have been deprovisioned. Metal3 does that when it begins to clean a server, which
// its demo mode has none of.
func (w *fixture) forgetErrors(ctx context.Context, servers []string) error {
	for _, server := range servers {
		host := &bmov1alpha1.BareMetalHost{}
		if err := w.management.Get(ctx, client.ObjectKey{Namespace: hostNamespace, Name: server}, host); err != nil {
			return client.IgnoreNotFound(err)
		}
		if host.Status.Provisioning.State != bmov1alpha1.StateAvailable || host.Status.ErrorType == "" {
			continue
		}
		before := host.DeepCopy()
		host.Status.ErrorType, host.Status.ErrorMessage, host.Status.OperationalStatus = "", "", bmov1alpha1.OperationalStatusOK
		if err := w.management.Status().Patch(ctx, host, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// createPodOn creates a pod for a pool, and the type of its name.
func (w *fixture) createPodOn(t *testing.T, name, pool string, asks corev1.ResourceList) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{karpv1.NodePoolLabelKey: pool, corev1.LabelInstanceTypeStable: pool},
			Containers:   []corev1.Container{w.container(asks)},
		},
	}
	if err := w.tenant.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// claimHasCondition is a condition: the condition ServerReady of the pool's one NodeClaim has the reason, and its message the
// parts.
func (w *fixture) claimHasCondition(pool, reason string, parts ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		claims := &karpv1.NodeClaimList{}
		if err := w.tenant.List(ctx, claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}); err != nil {
			return "", err
		}
		claims.Items = slices.DeleteFunc(claims.Items, func(c karpv1.NodeClaim) bool { return !c.DeletionTimestamp.IsZero() })
		if len(claims.Items) != 1 {
			return fmt.Sprintf("there are %d NodeClaims that are not on their way out", len(claims.Items)), nil
		}
		reported := claims.Items[0].StatusConditions().Get(v1alpha1.ConditionServerReady)
		if reported == nil || reported.Reason != reason || containsAll(reported.Message, parts...) != "" {
			return fmt.Sprintf("the NodeClaim says %+v", reported), nil
		}
		return "", nil
	}
}

// hasEvent is a condition: an event on the object of that kind and name has the reason, and its message the parts. Without a name, it
// is on any object of the group.
func (w *fixture) hasEvent(kind, name, reason string, parts ...string) func(context.Context) (string, error) {
	return w.hasEventIn(w.tenant, kind, name, reason, parts...)
}

// hasEventIn is hasEvent for an object of either cluster.
func (w *fixture) hasEventIn(cluster client.Client, kind, name, reason string, parts ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		events := &corev1.EventList{}
		if err := cluster.List(ctx, events); err != nil {
			return "", err
		}
		var all []string
		for _, event := range events.Items {
			if involved := event.InvolvedObject; involved.Kind != kind || name != "" && involved.Name != name || name == "" &&
				!w.group.owns(involved.Name) {
				continue
			}
			if event.Reason == reason && containsAll(event.Message, parts...) == "" {
				return "", nil
			}
			all = append(all, event.Reason+": "+event.Message)
		}
		return fmt.Sprintf("no event %s on %s %s holds %q; there are %q", reason, kind, name, parts, all), nil
	}
}

// quarantine is the annotation of a server, empty if it is not quarantined.
func (w *fixture) quarantine(ctx context.Context, server string) (string, error) {
	host := &bmov1alpha1.BareMetalHost{}
	err := w.management.Get(ctx, client.ObjectKey{Namespace: hostNamespace, Name: server}, host)
	return host.Annotations[v1alpha1.QuarantinedAnnotationKey], err
}
