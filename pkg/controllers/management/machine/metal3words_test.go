// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// imageSecrets are in texts of Metal3 and Ironic: the URL of the image is in each error of provisioning.
const imageSecrets = "https://robot:hunter2@images.example.com/os.qcow2?X-Amz-Signature=5ec4e7"

// errorTypes are those that the definition of Metal3 lets Metal3 write.
var errorTypes = []bmov1alpha1.ErrorType{
	bmov1alpha1.ProvisionedRegistrationError, bmov1alpha1.RegistrationError, bmov1alpha1.InspectionError, bmov1alpha1.PreparationError,
	bmov1alpha1.ProvisioningError, bmov1alpha1.PowerManagementError, bmov1alpha1.ServicingError,
}

// tenantsView is what a tenant reads: each object that the account of its provider may read, and the events of its Machines.
type tenantsView struct {
	*fixture
	kinds []schema.GroupVersionKind
}

func newTenantsView(w *fixture) *tenantsView {
	w.t.Helper()
	v := &tenantsView{fixture: w}
	rights, err := rbac.Read(rbac.Files, "provider-management.yaml", w.tenant)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, right := range rights {
		role := &rbacv1.ClusterRole{} // the rules of a Role are the same field
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(right.Object, role); err != nil {
			w.t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Verbs, "get") && !slices.Contains(rule.Verbs, "list") {
				continue
			}
			for _, resource := range rule.Resources {
				kind, err := w.client.RESTMapper().KindFor(schema.GroupVersionResource{Group: rule.APIGroups[0], Resource: resource})
				if err != nil {
					w.t.Fatalf("%s of %s, %v", resource, rule.APIGroups[0], err)
				}
				v.kinds = append(v.kinds, kind)
			}
		}
	}
	return v
}

// read returns all of it as text.
func (v *tenantsView) read() string {
	v.t.Helper()
	var all []string
	for _, kind := range v.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := v.client.List(v.t.Context(), list); err != nil {
			v.t.Fatalf("listing %s, %v", kind, err)
		}
		for _, object := range list.Items {
			if namespace := object.GetNamespace(); namespace == "" || namespace == v.tenant {
				text, err := json.Marshal(object.Object)
				if err != nil {
					v.t.Fatal(err)
				}
				all = append(all, string(text))
			}
		}
	}
	for _, p := range v.processes {
		for len(p.events) > 0 {
			all = append(all, "event "+<-p.events)
		}
	}
	return strings.Join(all, "\n")
}

// TestTenantsReadNothingOfMetal3: whatever Metal3 and Ironic write into the status of a server, and in whichever state its Machine is, it
// is in nothing that a tenant may read.
func TestTenantsReadNothingOfMetal3(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		onError v1alpha1.OnErrorPolicy
	}{
		"Hold":    {"the Machine stays in error, and recovers", v1alpha1.OnErrorHold},
		"Replace": {"the Machine is given up, and says why", v1alpha1.OnErrorReplace},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixtureOn(t, &environment, 2)
			view := newTenantsView(w)
			manager := w.start(w.client)
			w.editType(func(nodeType *v1alpha1.NodeType) { nodeType.Spec.OnError = tc.onError })
			w.userData("user-data")
			w.machine("pinned", func(m *v1alpha1.Machine) { // says why it does not get the other server
				m.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: "server-01"}
			})
			w.host("server-01", func(host *bmov1alpha1.BareMetalHost) {
				host.Status.OperationalStatus = bmov1alpha1.OperationalStatusDelayed
			})
			key := w.machine("m", func(m *v1alpha1.Machine) {
				m.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: "server-00"}
				m.Spec.Bootstrap.DataSecretName = "user-data"
			})
			look := func(when string) {
				t.Helper()
				manager.round()
				text := view.read()
				if machine := w.get(key); machine != nil && !strings.Contains(text, string(machine.UID)) {
					t.Fatalf("%s: the Machine is not among what a tenant reads", when)
				}
				for line := range strings.Lines(text) {
					if strings.Contains(line, "hunter2") {
						t.Errorf("%s: %s: a tenant reads %s", tc.reason, when, line)
					}
				}
			}
			reached := map[v1alpha1.MachinePhase]bool{}
			// says has Metal3 write of both servers, and looks. A state that is not set is the one that they are in.
			says := func(state bmov1alpha1.ProvisioningState, kind bmov1alpha1.ErrorType, count int) {
				t.Helper()
				are := map[string]bmov1alpha1.ProvisioningState{}
				for _, host := range w.hosts() {
					are[host.Name] = host.Status.Provisioning.State
					w.host(host.Name, func(host *bmov1alpha1.BareMetalHost) {
						env.MarkTexts(host, imageSecrets)
						host.Status.Provisioning.State = cmp.Or(state, host.Status.Provisioning.State)
						host.Status.OperationalStatus, host.Status.ErrorType, host.Status.ErrorCount = bmov1alpha1.OperationalStatusError, kind, count
						if kind == "" {
							host.Status.OperationalStatus, host.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, ""
						}
					})
				}
				look(fmt.Sprintf("state %q, error %q", state, kind))
				if machine := w.get(key); machine != nil {
					reached[machine.Status.Phase] = true
				}
				for name, state := range are {
					w.host(name, func(host *bmov1alpha1.BareMetalHost) { host.Status.Provisioning.State = state })
				}
			}
			step := func() {
				t.Helper()
				phase := w.get(key).Status.Phase
				says("", "", 0)
				says(imageSecrets, "", 0)
				if tc.onError == v1alpha1.OnErrorHold || phase == v1alpha1.MachineProvisioning || phase == v1alpha1.MachineReleasing {
					for n, kind := range errorTypes {
						says("", kind, n)
					}
					says(imageSecrets, bmov1alpha1.ProvisioningError, 1)
					says("", "", 0)
				}
				w.playMetal3()
			}
			done := func(phase v1alpha1.MachinePhase) {
				t.Helper()
				for range maxRounds {
					if machine := w.get(key); machine == nil || machine.Status.Phase == phase {
						return
					}
					step()
				}
				t.Fatalf("not %s: %+v", phase, w.get(key).Status)
			}
			if tc.onError == v1alpha1.OnErrorReplace {
				done(v1alpha1.MachineFailed)
			} else {
				done(v1alpha1.MachineProvisioned)
				w.edit(key, func(m *v1alpha1.Machine) { m.Spec.Node = &v1alpha1.MachineNode{Name: "node"} })
				done(v1alpha1.MachineJoined)
			}
			step()
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			for range maxRounds {
				if w.get(key) == nil {
					break
				}
				step()
			}
			if w.get(key) != nil || !reached[v1alpha1.MachineReleasing] || !reached[v1alpha1.MachineFailed] {
				t.Errorf("the Machine was only %v", reached)
			}
		})
	}
}

// editType changes the NodeType of the fixture.
func (w *fixture) editType(change func(*v1alpha1.NodeType)) {
	w.t.Helper()
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Name: w.nodeType}, nodeType); err != nil {
		w.t.Fatal(err)
	}
	change(nodeType)
	if err := w.client.Update(w.t.Context(), nodeType); err != nil {
		w.t.Fatal(err)
	}
}

// TestHostErrorSays: what each error means is in our words, and so is where an operator reads Metal3's.
func TestHostErrorSays(t *testing.T) {
	for _, kind := range append(errorTypes, bmov1alpha1.DetachError, "", "a new error") {
		host := &bmov1alpha1.BareMetalHost{}
		host.Namespace, host.Name = "metal3", "h"
		host.Status.ErrorType, host.Status.ErrorMessage, host.Status.ErrorCount = kind, imageSecrets, 3
		message := hosts.ErrorOf(host)
		if !strings.HasPrefix(message, "server metal3/h: ") || !strings.Contains(message, "; 3 times in a row (an operator") ||
			!strings.HasSuffix(message, "kubectl describe baremetalhost -n metal3 h)") || strings.Contains(message, "hunter2") {
			t.Errorf("%q: %s", kind, message)
		}
	}
	if message := hosts.ErrorOf(&bmov1alpha1.BareMetalHost{}); message != "" {
		t.Errorf("a server without an error: %s", message)
	}
}
