// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// TestEveryHostWriteIsACompareAndSwap: another client writes the host between our read and our write.
func TestEveryHostWriteIsACompareAndSwap(t *testing.T) {
	ctx := t.Context()
	for name, tc := range map[string]struct {
		reason string
		write  func(hosts.Writer, *bmov1alpha1.BareMetalHost, *v1alpha1.Machine) error
	}{
		"Claim": {"two Machines would have it", func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, m *v1alpha1.Machine) error {
			_, err := c.Claim(ctx, v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}, m)
			return err
		}},
		"Install": {"an image would be written over that of the next owner",
			func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, m *v1alpha1.Machine) error {
				host.Spec.ConsumerRef = hosts.OwnerOf(m).ConsumerRef()
				_, err := c.Install(ctx, host, &plan.Plan{Image: properties.Image{URL: "http://x/y"}}, bootstrap.Documents{}, nil)
				return err
			}},
		"Power": {"the next owner's server would be switched off",
			func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, _ *v1alpha1.Machine) error {
				_, err := c.Power(ctx, host, true)
				return err
			}},
		"Reboot": {"the next owner's server would be rebooted", func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, _ *v1alpha1.Machine) error {
			_, err := c.Reboot(ctx, host, true, hosts.RebootMark("", time.Unix(1, 0)))
			return err
		}},
		"SwitchOff": {"the next owner's server would be switched off",
			func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, _ *v1alpha1.Machine) error {
				_, err := c.SwitchOff(ctx, host)
				return err
			}},
		"Empty": {"the next owner's image would be taken off", func(c hosts.Writer, host *bmov1alpha1.BareMetalHost, _ *v1alpha1.Machine) error {
			host.Spec.Online = true
			_, err := c.Empty(ctx, host)
			return err
		}},
		"Release": {"the next owner's claim would be taken away", func(
			c hosts.Writer, host *bmov1alpha1.BareMetalHost, m *v1alpha1.Machine,
		) error {
			host.Spec.ConsumerRef = hosts.OwnerOf(m).ConsumerRef()
			return c.Release(ctx, host)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			machine, other := w.get(w.machine("m", standAlone)), w.get(w.machine("other", standAlone))
			machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: w.nodeType}
			overtaken := interceptor.NewClient(w.api.Client, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					host := w.hosts()[0]
					host.Spec.ConsumerRef = hosts.OwnerOf(other).ConsumerRef()
					if err := c.Update(ctx, &host); err != nil {
						t.Fatal(err)
					}
					return c.Patch(ctx, object, patch, options...)
				},
			})
			err := tc.write(hosts.Writer{Client: overtaken, Live: w.client}, &w.hosts()[0], machine)
			var taken *hosts.TakenError // Claim reads again, and finds the consumer
			if !apierrors.IsConflict(err) && !errors.As(err, &taken) {
				t.Errorf("%s: got %v, want a conflict", tc.reason, err)
			}
			if host := w.hosts()[0]; !hosts.Owns(hosts.OwnerOf(other), &host) || host.Spec.Image != nil {
				t.Errorf("%s: consumer %v, image %v", tc.reason, host.Spec.ConsumerRef, host.Spec.Image)
			}
		})
	}
}

// TestStaleInventory: the watch of hosts is behind, and the first servers that are chosen cannot be had. The same look at the Machine takes
// the one that can.
func TestStaleInventory(t *testing.T) {
	w := newFixture(t, 5)
	p := w.start(w.client)
	hosts := w.hosts()
	for i := range hosts {
		p.inventory.SetHost(&hosts[i])
	}
	for i := range hosts[1:] {
		hosts[i].Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Other", Namespace: "a", Name: "b", UID: "c"}
		if err := w.client.Update(t.Context(), &hosts[i]); err != nil {
			t.Fatal(err)
		}
	}
	key := w.machine("m", nil)
	p.look(key)
	if machine := w.get(key); machine.Status.HostRef == nil || machine.Status.HostRef.Name != hosts[len(hosts)-1].Name {
		t.Errorf("the Machine has not got the only server that is left: %+v", machine.Status)
	}
}

func TestClaimTakesOnlyWhatCanBeHad(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		change    func(*fixture)
		reference func(*v1alpha1.HostReference)
		says      string
	}{
		"Paused": {reason: "it was paused after it had been chosen", change: func(w *fixture) {
			host := w.hosts()[0]
			host.Annotations = map[string]string{bmov1alpha1.PausedAnnotation: ""}
			if err := w.client.Update(w.t.Context(), &host); err != nil {
				w.t.Fatal(err)
			}
		}},
		"InError": {reason: "it broke after it had been chosen", change: func(w *fixture) {
			w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
				host.Status.ErrorType = bmov1alpha1.PowerManagementError
			})
		}},
		"TooSmall": {reason: "it was inspected after it had been chosen, and a processor is missing", says: "it is too small for NodeType",
			change: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.HardwareDetails.CPU.Count = 4 })
			}},
		"MadeAnew": {reason: "it is another server under the same name", reference: func(r *v1alpha1.HostReference) { r.UID = "other" }},
		"Deleted":  {reason: "it does not exist any more", reference: func(r *v1alpha1.HostReference) { r.Name = "server-99" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			machine, host := w.get(w.machine("m", standAlone)), w.hosts()[0]
			machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: w.nodeType}
			reference := v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
			if tc.change != nil {
				tc.change(w)
			}
			if tc.reference != nil {
				tc.reference(&reference)
			}
			var taken *hosts.TakenError
			if _, err := (hosts.Writer{Client: w.client, Live: w.client}).Claim(t.Context(), reference, machine); !errors.As(err, &taken) {
				t.Errorf("%s: got %v, want a TakenError", tc.reason, err)
			} else if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %q does not say %q", tc.reason, err, tc.says)
			}
			if w.hosts()[0].Spec.ConsumerRef != nil {
				t.Errorf("%s: it has been claimed", tc.reason)
			}
		})
	}
}

// TestConsumerIsNotDisclosed: what is said of a server that cannot be had is read in the tenant's namespace.
func TestConsumerIsNotDisclosed(t *testing.T) {
	w := newFixture(t, 1)
	key, manager := w.machine("m", standAlone), w.start(w.client)
	w.until("claimed", func() *process { return manager }, func() bool { return w.get(key).Status.ProviderID != "" })
	red := w.api.Namespace(t)
	host := w.hosts()[0]
	host.Spec.ConsumerRef.Namespace, host.Spec.ConsumerRef.Name, host.Spec.ConsumerRef.UID = red, "secret-project", "1"
	if err := w.client.Update(t.Context(), &host); err != nil {
		t.Fatal(err)
	}
	manager.sweeps = false
	manager.round()
	status := w.get(key).Status
	pinned := w.machine("pinned", func(machine *v1alpha1.Machine) {
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: host.Name}
	})
	manager.round()
	for _, text := range []string{fmt.Sprint(status), fmt.Sprint(w.get(pinned).Status)} {
		if strings.Contains(text, red) || strings.Contains(text, "secret-project") {
			t.Errorf("the message has the consumer of the server: %s", text)
		}
	}
}

// TestNamespaceNotGiven: a Machine whose server is in a namespace in which the manager has no rights says what is missing, and gets the
// server once the right is there.
func TestNamespaceNotGiven(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", nil)
	given := false
	manager := w.start(interceptor.NewClient(w.api.Client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, host := object.(*bmov1alpha1.BareMetalHost); host && !given {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "baremetalhosts"}, object.GetName(), errors.New("no RBAC"))
			}
			return c.Patch(ctx, object, patch, options...)
		},
	}))
	running := func() *process { return manager }
	w.until("told what is missing", running, func() bool {
		return strings.Contains(condition(w.get(key), v1alpha1.ConditionReady).Message, "add the namespace to manager.hostNamespaces")
	})
	given = true
	w.until("claimed", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineClaimed })
}
