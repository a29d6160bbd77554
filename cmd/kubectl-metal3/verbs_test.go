// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// verbs are the commands that write.
var verbs = map[string]bool{"maintenance": true, "quarantine": true, "return": true, "reboot": true, "power": true}

// cluster is a management cluster with the fleet.
func cluster(funcs interceptor.Funcs) client.WithWatch { return clusterOf(fleet(), funcs) }

func clusterOf(snapshot *view.Snapshot, funcs interceptor.Funcs) client.WithWatch {
	builder := fake.NewClientBuilder().WithScheme(view.Scheme()).WithInterceptorFuncs(funcs)
	for i := range snapshot.Management.Hosts {
		builder.WithObjects(&snapshot.Management.Hosts[i])
	}
	for i := range snapshot.Management.NodeTypes {
		builder.WithObjects(&snapshot.Management.NodeTypes[i])
	}
	builder.WithObjects(&snapshot.Management.NodeProviders[0], &snapshot.Management.TenantClusters[0])
	for i := range snapshot.Management.Machines {
		if machine := &snapshot.Management.Machines[i]; machine.DeletionTimestamp.IsZero() {
			builder.WithObjects(machine)
		}
	}
	builder.WithObjects(&v1alpha1.Machine{ObjectMeta: objectMeta("acme", "waiting")})
	return builder.Build()
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// write runs a command that writes. The answer is what a person types.
func write(t *testing.T, management client.WithWatch, answer string, arguments ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	o := &options{
		IOStreams:  genericiooptions.IOStreams{In: strings.NewReader(answer), Out: &stdout, ErrOut: &stderr},
		management: genericclioptions.NewConfigFlags(true),
		connect:    func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return management, nil },
	}
	command := o.command()
	command.SetArgs(arguments)
	err = command.ExecuteContext(context.Background())
	return stdout.String() + stderr.String(), err
}

func TestVerbs(t *testing.T) {
	const (
		asks  = "node default-x7f2k runs on server server-07, and this reboots it. Type yes to go on: "
		keeps = "Machine acme/default-x7f2k, node default-x7f2k, keeps it. To drain it, delete the NodeClaim of that name in the tenant " +
			"cluster, or the Machine if it has none\n"
		free = "✓ server metal3-system/server-12 (rack r1, zone global) can be claimed\n└─ · it matches NodeType h100-8x\n"
	)
	for name, tc := range map[string]struct {
		reason, arguments, answer string
		out, err                  string
		// host and machine are the annotations afterwards, and power is spec.power.state.
		host, machine map[string]string
		power         v1alpha1.PowerState
	}{
		"maintenance": {reason: "a Machine that has it keeps it", arguments: "maintenance server-07 --reason DIMM",
			out:  "server metal3-system/server-07 is in maintenance: DIMM\n" + keeps,
			host: map[string]string{v1alpha1.MaintenanceAnnotationKey: "DIMM"}},
		"maintenance, again": {reason: "nothing is written", arguments: "maintenance metal3-system/server-12 --reason DIMM3",
			out: "server metal3-system/server-12 is in maintenance already\n"},
		"maintenance without a reason": {reason: "the next person has to know", arguments: "maintenance server-07",
			err: `required flag(s) "reason" not set`},
		"quarantine": {reason: "it is not claimed any more", arguments: "quarantine server-07 --reason GPU",
			out:  "server metal3-system/server-07 is in quarantine: GPU\n" + keeps,
			host: map[string]string{v1alpha1.QuarantinedAnnotationKey: "GPU"}},
		"quarantine by the manager": {reason: "its record says whose server it was", arguments: "quarantine server-11 --reason GPU",
			out: "server metal3-system/server-11 is in quarantine already, by the manager: HostError. Its record stays as it is, and nothing was " +
				"written\n"},
		"return": {reason: "it says how the server is now", arguments: "return server-12",
			out: "removed from server metal3-system/server-12: karpenter.metal3.io/maintenance (DIMM3)\n" + free},
		"return of nothing": {reason: "nothing is to be removed", arguments: "return server-16",
			out: "server metal3-system/server-16 is neither in maintenance nor in quarantine\n" +
				"✓ server metal3-system/server-16 (rack r1, zone global) can be claimed\n└─ · it matches NodeType cpu\n"},
		"reboot": {reason: "a person has said yes", arguments: "reboot default-x7f2k --reason hangs", answer: "yes\n",
			out: "Metal3 will be told to reboot the server of Machine acme/default-x7f2k (soft). status.power.lastReboot says when it was\n" +
				asks,
			machine: map[string]string{v1alpha1.RebootAnnotationKey: "soft", v1alpha1.ReasonAnnotationKey: "hangs"}},
		"reboot, no": {reason: "a person has not said yes", arguments: "reboot default-x7f2k", answer: "y\n", out: asks,
			err: "nothing was changed"},
		"reboot, hard": {reason: "confirmed in advance", arguments: "reboot acme/default-x7f2k --hard --yes",
			out:     "Metal3 will be told to reboot the server of Machine acme/default-x7f2k (hard). status.power.lastReboot says when it was\n",
			machine: map[string]string{v1alpha1.RebootAnnotationKey: "hard"}},
		"reboot of nothing": {reason: "there is no server to reboot", arguments: "reboot waiting",
			err: "there is no server of Machine acme/waiting: see kubectl metal3 explain machine acme/waiting"},
		"power off": {reason: "a person has said yes", arguments: "power default-x7f2k OFF --yes", power: v1alpha1.PowerOff,
			out: "spec.power.state of Machine acme/default-x7f2k is Off. status.power.state says when its server is\n"},
		"power on": {reason: "that interrupts nothing", arguments: "power default-x7f2k on", power: v1alpha1.PowerOn,
			out: "spec.power.state of Machine acme/default-x7f2k is On. status.power.state says when its server is\n"},
		"power": {reason: "a typo", arguments: "power default-x7f2k down", err: `the power is "down": it must be on or off`},
		"offline": {reason: "a file is no cluster", arguments: "return server-12 --snapshot fleet.json",
			err: "--snapshot is set, and this command changes a cluster: leave it out"},
		"no host": {reason: "a typo", arguments: "return server-99", err: `host "server-99" was not found`},
	} {
		t.Run(name, func(t *testing.T) {
			management := cluster(interceptor.Funcs{})
			out, err := write(t, management, tc.answer, strings.Fields(tc.arguments)...)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff([]string{tc.out, tc.err}, []string{out, problem}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			host, machine := &bmov1alpha1.BareMetalHost{ObjectMeta: objectMeta("metal3-system", "server-07")}, &v1alpha1.Machine{}
			for key, object := range map[client.ObjectKey]client.Object{
				{Namespace: "metal3-system", Name: "server-07"}: host, {Namespace: "acme", Name: "default-x7f2k"}: machine,
			} {
				if err := management.Get(context.Background(), key, object); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff([]map[string]string{tc.host, tc.machine}, []map[string]string{host.Annotations, machine.Annotations}); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if power := machine.Spec.Power; (power == nil) != (tc.power == "") || power != nil && power.State != tc.power {
				t.Errorf("the power is %v, want %q", power, tc.power)
			}
		})
	}
}

// A kind that may not be listed is a warning with the rule, and one that is not there an error. Each is one sentence.
func TestKindsMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		err       error
		out, want string
	}{
		"rights": {reason: "the servers are shown all the same",
			err: apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}, "", nil),
			out: "warning: you may not list machines.karpenter.metal3.io in the management cluster, and what depends on them is not shown: the " +
				"rule that is missing is apiGroups [\"karpenter.metal3.io\"], resources [\"machines\"], verbs [list]\n"},
		"definitions": {reason: "it is another cluster, or nothing is installed",
			err:  &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.Group, Kind: "Machine"}},
			want: "the management cluster has no machines.karpenter.metal3.io: install its CRD, or name another cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			management := cluster(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
				options ...client.ListOption) error {
				if _, isMachines := list.(*v1alpha1.MachineList); isMachines {
					return tc.err
				}
				return c.List(ctx, list, options...)
			}})
			out, err := write(t, management, "", "hosts", "-o", "name", "--rack", "r9")
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff([]string{tc.out, tc.want}, []string{out, problem}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What a person has confirmed is what happens: a Machine that has changed since is left alone.
func TestVerbConflict(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.Group, Resource: "machines"}, "default-x7f2k", nil)
	locked := false
	management := cluster(interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, object client.Object, patch client.Patch,
		_ ...client.PatchOption) error {
		content, err := patch.Data(object)
		locked = strings.Contains(string(content), "resourceVersion")
		if err != nil {
			return err
		}
		return conflict
	}})
	if _, err := write(t, management, "yes\n", "reboot", "default-x7f2k"); err == nil || !strings.Contains(err.Error(),
		"writing to Machine acme/default-x7f2k") ||
		!locked {
		t.Errorf("got %v, with a lock: %v", err, locked)
	}
}

// TestVerbExamples runs the examples of --help.
func TestVerbExamples(t *testing.T) {
	for _, command := range newCommand(genericiooptions.IOStreams{}).Commands() {
		if !verbs[command.Name()] {
			continue
		}
		words, found := strings.CutPrefix(strings.TrimSpace(command.Example), "kubectl metal3 ")
		if !found {
			t.Fatalf("%s has no example: %q", command.Name(), command.Example)
		}
		words, reason, _ := strings.Cut(words, " --reason ")
		arguments := append(strings.Fields(words), "--reason="+strings.Trim(reason, "'"))
		if reason == "" {
			arguments = strings.Fields(words)
		}
		if out, err := write(t, cluster(interceptor.Funcs{}), "yes\n", arguments...); err != nil {
			t.Errorf("%s: %v: %s", command.Example, err, out)
		}
	}
}
