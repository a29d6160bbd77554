// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestScope: nothing is listed that a command does not show, and a namespace that is known is the only one that is listed.
func TestScope(t *testing.T) {
	const (
		types  = "NodeProviderList NodeTypeList"
		others = " " + types + " TenantClusterList MachineList"
		tenant = " tenant:PodList/ml tenant:NodeList tenant:NodePoolList tenant:NodeClaimList tenant:MetalNodeClassList"
	)
	for arguments, tc := range map[string]struct{ reason, want string }{
		"machines -n acme":    {"a Machine says all that is shown", "TenantClusterList/acme MachineList/acme"},
		"machines -n acme -A": {"all are asked for", "TenantClusterList MachineList"},
		"tenants -n acme": {"NodeTypes say how many accelerators there are",
			"NodeTypeList TenantClusterList/acme MachineList/acme"},
		"hosts -n metal3-system": {"it is the namespace of the servers", "BareMetalHostList/metal3-system" + others},
		"fleet -n metal3-system": {"so it is here", "BareMetalHostList/metal3-system" + others},
		"capacity -n acme": {"NodeTypes have servers in any",
			"BareMetalHostList " + types + " TenantClusterList/acme MachineList/acme"},
		"explain host metal3-system/server-07":    {"the name says it", "BareMetalHostList/metal3-system" + others},
		"explain host server-07 -n metal3-system": {"-n is that of the server", "BareMetalHostList/metal3-system" + others},
		"timeline host metal3-system/server-07": {"the record of a server is beside it",
			"BareMetalHostList/metal3-system" + others + " HostUsageList/metal3-system"},
		"return metal3-system/server-07":  {"what writes needs no more", "BareMetalHostList/metal3-system" + others},
		"reboot acme/default-x7f2k --yes": {"only the Machine is looked at", "TenantClusterList/acme MachineList/acme"},
		"propose-types --hosts-in lab":    {"others are not proposed for", "BareMetalHostList/lab" + others},
		"explain pod ml/train-0 -n acme --tenant-context acme": {"-n is of the management cluster, and Karpenter's scheduler plans all pods",
			"BareMetalHostList " + types + " TenantClusterList/acme MachineList/acme" + strings.Replace(tenant, "/ml", "", 1) +
				" NodeProfileList tenant:DaemonSetList"},
		"explain podgroup ml/train --tenant-context acme": {"its events are beside it", "BareMetalHostList" + others + tenant +
			" tenant:EventList/ml"},
	} {
		t.Run(arguments, func(t *testing.T) {
			var listed []string
			o := &options{IOStreams: genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard},
				management: genericclioptions.NewConfigFlags(true),
				connect: func(_ *genericclioptions.ConfigFlags, what string) (client.WithWatch, error) {
					return cluster(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
						options ...client.ListOption) error {
						kind := reflect.TypeOf(list).Elem().Name()
						if what == "tenant cluster" {
							kind = "tenant:" + kind
						}
						if namespace := (&client.ListOptions{}).ApplyOptions(options).Namespace; namespace != "" {
							kind += "/" + namespace
						}
						listed = append(listed, kind)
						return c.List(ctx, list, options...)
					}}), nil
				}}
			o.run(t.Context(), strings.Fields(arguments)) // whether it finds something does not matter
			if diff := cmp.Diff(strings.Fields(tc.want), listed); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTenantFlags: the flags lead to one tenant cluster or to several.
func TestTenantFlags(t *testing.T) {
	for arguments, tc := range map[string]struct{ reason, want string }{
		"":                      {"none is read", ""},
		"--tenant-kubeconfig a": {"its current context", "a:"},
		"--tenant-context x":    {"of the kubeconfig of kubectl", "kube:x"},
		"--tenant-kubeconfig a --tenant-kubeconfig b":                 {"a file for each tenant", "a: b:"},
		"--tenant-context x --tenant-context y":                       {"a context for each tenant", "kube:x kube:y"},
		"--tenant-kubeconfig a --tenant-context x --tenant-context y": {"contexts of a file", "a:x a:y"},
		"--tenant-kubeconfig a --tenant-kubeconfig b --tenant-context x": {"it is not clear whose context it is",
			"--tenant-kubeconfig names 2 files, and --tenant-context is of one: leave one of the flags out"},
	} {
		t.Run(arguments, func(t *testing.T) {
			o := newOptions(genericiooptions.IOStreams{})
			if err := o.command().ParseFlags(strings.Fields(arguments + " --kubeconfig kube")); err != nil {
				t.Fatal(err)
			}
			var got []string
			all, err := o.tenantFlags()
			for _, flags := range all {
				got = append(got, *flags.KubeConfig+":"+*flags.Context)
			}
			if err != nil {
				got = []string{err.Error()}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
