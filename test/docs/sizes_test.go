// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metal3v1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// managed is a management cluster with a manager, and an emulated Metal3.
type managed struct{ *management.Cluster }

func newManaged(t *testing.T) managed {
	t.Helper()
	m := managed{management.New(t, nil)}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	if err := m.Client.Get(t.Context(), client.ObjectKeyFromObject(provider), provider); err != nil {
		t.Fatal(err)
	}
	provider.Spec.Metal3.NodeTypes = provider.Spec.Metal3.NodeTypes[:1]
	provider.Spec.Metal3.NodeTypes[0].BareMetalHosts = env.HostsWith(map[string]string{"gpu-model": "h100", "gpu-count": "8"})
	if err := m.Client.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	m.PlayMetal3(t)
	m.StartManager(t)
	return m
}

// once writes the status of the server when it is as wanted, as Metal3 would.
func (m managed) once(ctx context.Context, what string, wanted func(*metal3v1alpha1.BareMetalHost) bool,
	write func(*metal3v1alpha1.BareMetalHostStatus)) error {
	return poll.Await(ctx, what, func(ctx context.Context) error {
		host := &metal3v1alpha1.BareMetalHost{}
		if err := m.Client.Get(ctx, client.ObjectKey{Namespace: management.HostsNamespace, Name: "server-01"}, host); err != nil {
			return err
		}
		if !wanted(host) {
			return fmt.Errorf("it is %s, with annotations %v", host.Status.Provisioning.State, host.Annotations)
		}
		write(&host.Status)
		return m.Client.Status().Update(ctx, host)
	})
}

// register makes a new host available.
func (m managed) register(ctx context.Context) error {
	return m.once(ctx, "the server is registered", func(host *metal3v1alpha1.BareMetalHost) bool {
		return host.Status.Provisioning.State == ""
	}, func(status *metal3v1alpha1.BareMetalHostStatus) { *status = env.AvailableHost("", "", nil).Status })
}

// detach lets go of a host that is to be detached.
func (m managed) detach(ctx context.Context) error {
	return m.once(ctx, "the server is detached", func(host *metal3v1alpha1.BareMetalHost) bool {
		_, detached := host.Annotations[metal3v1alpha1.DetachedAnnotation]
		return detached
	}, func(status *metal3v1alpha1.BareMetalHostStatus) {
		status.OperationalStatus = metal3v1alpha1.OperationalStatusDetached
	})
}

// claims makes a Machine, and waits until it has the server and that is installed.
func (m managed) claims(t *testing.T, name string) {
	t.Helper()
	machine := management.Machine(0)
	machine.Name, machine.Spec.Bootstrap.DataSecretName = name, management.UserDataName
	if err := m.Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "Machine "+name+" has the server", func(ctx context.Context) error {
		if err := m.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); err != nil {
			return err
		}
		if machine.Status.Phase != v1alpha1.MachineProvisioned {
			return fmt.Errorf("it is %s: %v", machine.Status.Phase, machine.Status.Conditions)
		}
		return nil
	})
}

// uses are those of the server that are recorded.
func (m managed) uses(t *testing.T) (uses int) {
	t.Helper()
	records := &v1alpha1.HostUsageList{}
	if err := m.Client.List(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	for i := range records.Items {
		uses += len(records.Items[i].Spec.Uses)
	}
	return uses
}

// TestSecondManagementCluster moves a server between two management clusters by the commands of docs/sizes.md. Metal3 is emulated.
func TestSecondManagementCluster(t *testing.T) {
	system.Only(t)
	first, second := newManaged(t), newManaged(t)
	bin, dir := absolute(t, root("bin")), filepath.Join(t.TempDir(), "page")
	p, err := page.Open(page.Config{
		File: root("docs", "sizes.md"), Dir: dir, Bin: bin, Kubeconfig: first.Kubeconfig(t, ""),
		Links: map[string]string{"second.kubeconfig": second.Kubeconfig(t, "")},
		Names: []string{
			"-n acme", "-n " + management.TenantNamespace,
			// There is no tenant whose Karpenter would do it.
			"kubectl --kubeconfig acme-admin.kubeconfig delete nodeclaim", "kubectl delete machines.karpenter.metal3.io --wait=false -n " +
				management.TenantNamespace,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks(t, "docs/first-server.md") {
		if block.Language == "yaml" && block.Lines[0] == "# server-01.yaml" {
			if err := os.WriteFile(filepath.Join(dir, "server-01.yaml"), []byte(block.Text()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if output, err := p.Run(t.Context(), "kubectl apply -f server-01.yaml\n"+
		"kubectl label baremetalhost -n metal3-system server-01 gpu-model=h100 gpu-count=8"); err != nil {
		t.Fatal(output, err)
	}
	if err := first.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.claims(t, "before")

	metal3, ctx := errgroup.WithContext(t.Context())
	metal3.Go(func() error { return first.detach(ctx) })
	metal3.Go(func() error { return second.register(ctx) })
	output, err := p.Follow(ctx, "Move a server to the other one", 4)
	if err = errors.Join(err, metal3.Wait()); err != nil {
		t.Fatal(err)
	}
	t.Log(output)
	if used, reported := first.uses(t), strings.Count(output, "tenant/tenant"); used != 1 || second.uses(t) != 0 || reported != 1 {
		t.Errorf("%d and %d uses, and %d tenants in the reports, want those of the first cluster", used, second.uses(t), reported)
	}
	second.claims(t, "after")
	poll.Eventually(t, "the first cluster has no server", func(ctx context.Context) error {
		nodeTypes := &v1alpha1.NodeTypeList{}
		if err := first.Client.List(ctx, nodeTypes); err != nil {
			return err
		}
		if len(nodeTypes.Items) != 1 || nodeTypes.Items[0].Status.Capacity.Total != 0 {
			return fmt.Errorf("%d types, and the first has %+v", len(nodeTypes.Items), nodeTypes.Items[0].Status.Capacity)
		}
		return nil
	})
}
