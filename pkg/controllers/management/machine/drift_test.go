// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const (
	firstKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAiMM8zhoC83Z4gHUkDtQU2Y7lO4GhP4tsrRu1dsYlRZ ops@example.com"
	secondKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB44Z2hU4Xb2Uo7rHLUwHj3dHhn5tPPaO2C0iTEWbJ0B ops@example.com"
)

// TestDrift: an installed Machine says whether one made now would be installed in the same way, and if not, in what.
func TestDrift(t *testing.T) {
	editType := func(change func(*v1alpha1.NodeType)) func(*fixture) {
		return func(w *fixture) {
			nodeType := &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}
			w.update(nodeType, func() { change(nodeType) })
		}
	}
	property := func(key, value string) func(*fixture) {
		return editType(func(nodeType *v1alpha1.NodeType) { nodeType.Spec.Properties[key] = value })
	}
	for name, tc := range map[string]struct {
		reason string
		// edit is done before the Machine is made.
		edit   func(*fixture)
		change func(*fixture)
		want   corev1.ConditionStatus
		why    string
		says   []string
		hides  []string
	}{
		"Nothing": {
			reason: "a Machine that is up to date has a condition too",
			change: func(*fixture) {}, want: corev1.ConditionFalse, why: v1alpha1.ReasonUpToDate,
		},
		"OtherImage": {
			reason: "this is how the reference has a fleet updated",
			change: func(w *fixture) { w.image("new-"+w.metal3, "http://images.example.com/new.qcow2")(w) },
			want:   corev1.ConditionTrue, why: v1alpha1.ReasonOSImageChanged,
			says: []string{"property karpenter.metal3.io/os-image of NodeType", `is "new-`, `was "image-`},
		},
		"ImageInPlace": {
			reason: "the reference: editing an OSImage moves nothing that runs",
			change: func(w *fixture) {
				image := &v1alpha1.OSImage{ObjectMeta: metaName(w.osImage)}
				w.update(image, func() {
					image.Spec.Properties[v1alpha1.PropertyImageURL] = "http://images.example.com/edited.qcow2"
					image.Spec.Properties[v1alpha1.PropertyUserData] = "#cloud-config\nruncmd: [echo]"
				})
			},
			want: corev1.ConditionFalse, why: v1alpha1.ReasonUpToDate,
		},
		"ImageWithoutURL": {
			reason: "servers must not be released for an installation that is not valid",
			change: func(w *fixture) {
				w.osImage = "gone-" + w.metal3
				editType(func(n *v1alpha1.NodeType) { n.Spec.Properties[v1alpha1.PropertyOSImage] = w.osImage })(w)
			},
			want: corev1.ConditionUnknown, why: v1alpha1.ReasonInvalidSpec,
			says: []string{"this one is not replaced", "there is no OSImage of that name"},
		},
		"TypeGone": {
			reason: "the same without a type",
			change: func(w *fixture) {
				if err := w.client.Delete(w.t.Context(), &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}); err != nil {
					w.t.Fatal(err)
				}
			},
			want: corev1.ConditionUnknown, why: v1alpha1.ReasonInvalidSpec, says: []string{"NodeType", "does not exist"},
		},
		"UserData": {
			reason: "the document may hold passwords, and is not shown",
			change: property(v1alpha1.PropertyUserData, "#cloud-config\nchpasswd: {list: 'root:hunter2'}"),
			want:   corev1.ConditionTrue, why: v1alpha1.ReasonUserDataChanged,
			says: []string{"property karpenter.metal3.io/user-data of NodeType", "was not set"}, hides: []string{"hunter2"},
		},
		"Key": {
			reason: "a key that was replaced is to go off the servers",
			change: func(w *fixture) {
				key := &v1alpha1.SSHKey{ObjectMeta: metaName("key-" + w.metal3)}
				w.update(key, func() { key.Spec.PublicKey = secondKey })
			},
			want: corev1.ConditionTrue, why: v1alpha1.ReasonUserDataChanged,
			says: []string{"spec.publicKey of SSHKey key-", "has been edited"}, hides: []string{"AAAA"},
		},
		"Template": {
			reason: "a template is the user data, and not a reference to an artefact as an image is",
			change: func(w *fixture) {
				template := &v1alpha1.MachineConfigTemplate{ObjectMeta: metaName("template-" + w.metal3)}
				w.update(template, func() { template.Spec.NetworkDataTemplate += "\n# edited" })
			},
			want: corev1.ConditionTrue, why: v1alpha1.ReasonNetworkChanged,
			says: []string{"spec.networkDataTemplate of MachineConfigTemplate template-", "has been edited"},
		},
		"TemplateProperty": {
			reason: "a property of people's own counts where a template reads it",
			change: property("example.com/mtu", "9000"),
			want:   corev1.ConditionTrue, why: v1alpha1.ReasonNetworkChanged,
			says: []string{`property example.com/mtu of NodeType`, `is "9000"`, `was "1500"`},
		},
		"OtherProperty": {
			reason: "what is only there to be selected on rolls no fleet",
			change: property("example.com/tier", "gold"), want: corev1.ConditionFalse, why: v1alpha1.ReasonUpToDate,
		},
		"Network": {
			reason: "servers of one network are not to be in two",
			change: property(v1alpha1.PropertyDNSServers, "10.0.0.54"),
			want:   corev1.ConditionTrue, why: v1alpha1.ReasonNetworkChanged,
			says: []string{"karpenter.metal3.io/dns-servers", `is "10.0.0.54"`, `was "10.0.0.53"`},
		},
		"NTP": {
			reason: "the servers that there are have none",
			change: property(v1alpha1.PropertyNTPServers, "10.0.0.123"), want: corev1.ConditionTrue, why: v1alpha1.ReasonNetworkChanged,
			says: []string{"karpenter.metal3.io/ntp-servers", `is "10.0.0.123"`, "was not set"},
		},
		"NTPChanged": {
			reason: "servers of one type are not to have two times",
			edit:   property(v1alpha1.PropertyNTPServers, "10.0.0.123"),
			change: property(v1alpha1.PropertyNTPServers, "10.0.0.124"),
			want:   corev1.ConditionTrue, why: v1alpha1.ReasonNetworkChanged,
			says: []string{"karpenter.metal3.io/ntp-servers", `is "10.0.0.124"`, `was "10.0.0.123"`},
		},
		"Overhead": {
			reason: "kubelet was started with it, and Karpenter reckons with what it is now",
			change: editType(func(n *v1alpha1.NodeType) {
				n.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: env.Resources("cpu", "2")}
			}),
			want: corev1.ConditionTrue, why: v1alpha1.ReasonNodeTypeChanged, says: []string{"spec.overhead.kubeReserved of NodeType", `is "cpu=2"`},
		},
		"Cost": {
			reason: "what a type costs has nothing to do with what is installed",
			change: editType(func(n *v1alpha1.NodeType) { n.Spec.Cost = new(int64) }), want: corev1.ConditionFalse, why: v1alpha1.ReasonUpToDate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.create(&v1alpha1.SSHKey{ObjectMeta: metaName("key-" + w.metal3), Spec: v1alpha1.SSHKeySpec{PublicKey: firstKey}})
			w.create(&v1alpha1.MachineConfigTemplate{ObjectMeta: metaName("template-" + w.metal3), Spec: v1alpha1.MachineConfigTemplateSpec{
				NetworkDataTemplate: "version: 2\nethernets:\n  eth0:\n    dhcp4: true\n    mtu: {{ index .Values.Properties \"example.com/mtu\" }}\n",
			}})
			editType(func(n *v1alpha1.NodeType) {
				n.Spec.Properties[v1alpha1.PropertySSHKeys] = "key-" + w.metal3
				n.Spec.Properties[v1alpha1.PropertyNetworkDataTemplate] = "template-" + w.metal3
				n.Spec.Properties[v1alpha1.PropertyDNSServers] = "10.0.0.53"
				n.Spec.Properties["example.com/mtu"] = "1500"
			})(w)
			if tc.edit != nil {
				tc.edit(w)
			}
			key := w.machine("m", standAlone)
			p := w.start(w.client)
			w.until("installed", func() *process { return p }, func() bool {
				return condition(w.get(key), v1alpha1.ConditionDrifted).Status == "False" && w.get(key).Status.Phase == v1alpha1.MachineProvisioned
			})
			before := w.get(key).Status
			tc.change(w)
			p.round()
			p.round()
			after := w.get(key)
			drifted := condition(after, v1alpha1.ConditionDrifted)
			if string(drifted.Status) != string(tc.want) || drifted.Reason != tc.why {
				t.Errorf("%s: Drifted is %s (%s): %s; want %s (%s)", tc.reason, drifted.Status, drifted.Reason, drifted.Message, tc.want, tc.why)
			}
			for _, part := range tc.says {
				if !strings.Contains(drifted.Message, part) {
					t.Errorf("%s: the message is %q and lacks %q", tc.reason, drifted.Message, part)
				}
			}
			for _, secret := range tc.hides {
				if strings.Contains(drifted.Message, secret) {
					t.Errorf("%s: the message shows %q: %s", tc.reason, secret, drifted.Message)
				}
			}
			// What was installed stays on record, and the Machine goes on.
			if diff := cmp.Diff(before.Installed, after.Status.Installed); diff != "" || before.PropertiesHash != after.Status.PropertiesHash {
				t.Errorf("%s: the record of what was installed has changed: %s", tc.reason, diff)
			}
			if ready := condition(after, v1alpha1.ConditionReady); ready.Status != "True" {
				t.Errorf("%s: the Machine is not ready any more: %s", tc.reason, ready.Message)
			}
			if tc.want == corev1.ConditionTrue && !p.reported(tc.why) {
				t.Errorf("%s: no event says so", tc.reason)
			}
		})
	}
}

// TestDriftReverted: reverting a NodeType ends the drift of its Machines.
func TestDriftReverted(t *testing.T) {
	w := newFixture(t, 1)
	key, old := w.machine("m", standAlone), w.osImage
	p := w.start(w.client)
	drifted := func(want string) func() bool {
		return func() bool { return string(condition(w.get(key), v1alpha1.ConditionDrifted).Status) == want }
	}
	w.until("installed", func() *process { return p }, drifted("False"))
	w.image("new-"+w.metal3, "http://images.example.com/new.qcow2")(w)
	w.until("drifted", func() *process { return p }, drifted("True"))
	nodeType := &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}
	w.update(nodeType, func() { nodeType.Spec.Properties[v1alpha1.PropertyOSImage] = old })
	w.until("up to date again", func() *process { return p }, drifted("False"))
}

// TestDriftWithoutRecord: of a machine that was installed before there were records, or by a manager that looked at other
// fields, nothing is known. It is left alone.
func TestDriftWithoutRecord(t *testing.T) {
	for name, hash := range map[string]string{"None": "", "OfAnotherVersion": "v0-0123456789abcdef"} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key := w.machine("m", standAlone)
			p := w.start(w.client)
			w.until("installed", func() *process { return p }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			machine := w.get(key)
			before := machine.DeepCopy()
			machine.Status.PropertiesHash, machine.Status.Installed = hash, nil
			machine.Status.Conditions = slices.DeleteFunc(machine.Status.Conditions, isDrifted)
			if err := w.client.Status().Patch(t.Context(), machine, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
			w.image("new-"+w.metal3, "http://images.example.com/new.qcow2")(w)
			p.round()
			if slices.ContainsFunc(w.get(key).Status.Conditions, isDrifted) {
				t.Errorf("Drifted is %+v, and nothing is known", condition(w.get(key), v1alpha1.ConditionDrifted))
			}
		})
	}
}

func isDrifted(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionDrifted }

// image makes an OSImage and has the fixture's type refer to it.
func (w *fixture) image(name, url string) func(*fixture) {
	return func(w *fixture) {
		image := &v1alpha1.OSImage{ObjectMeta: metaName(name)}
		image.Spec.Properties = map[string]string{v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: checksum}
		w.create(image)
		nodeType := &v1alpha1.NodeType{ObjectMeta: metaName(w.nodeType)}
		w.update(nodeType, func() { nodeType.Spec.Properties[v1alpha1.PropertyOSImage] = name })
	}
}

// update reads an object, has it changed, and writes it.
func (w *fixture) update(object client.Object, change func()) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	change()
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}
