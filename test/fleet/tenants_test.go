// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpentercloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management/inprocess"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// gpus are those of a server, which each pod wants.
var gpus = env.Resources("nvidia.com/gpu", "8")

// A tenant wants servers.
type tenant interface {
	// want asks for so many servers, and returns when all are asked for.
	want(ctx context.Context, count int) error
	// restart kills its provider and starts it again, and returns when that is ready.
	restart(ctx context.Context) error
}

type tenantBase struct {
	fleet *fleet
	name  string
}

// processTenant has an API server, and a provider.
type processTenant struct {
	tenantBase
	control *cluster.Cluster
	health  string
}

func startProcess(ctx context.Context, base tenantBase, etcd *cluster.Etcd) (*processTenant, error) {
	f := base.fleet
	control, err := cluster.Start(ctx, cluster.Options{
		Name: base.name, Dir: f.dir, Binaries: f.binaries, Processes: f.processes, Etcd: etcd, Prepare: cluster.PrepareTenant,
		APIServerFlags: []string{"--disable-admission-plugins=ServiceAccount"}, // no controller makes any
	})
	if err != nil {
		return nil, err
	}
	p := &processTenant{tenantBase: base, control: control}
	user := cluster.ProviderUser + "-" + p.name
	onManagement, inTenant := filepath.Join(f.dir, p.name+"-management.kubeconfig"), filepath.Join(f.dir, p.name+"-tenant.kubeconfig")
	address, err := freeport.Address()
	if err := errors.Join(err,
		f.control.Grant(ctx, user, p.name, onManagement, cluster.ProviderManagementRights...),
		control.Grant(ctx, cluster.ProviderUser, p.name, inTenant, cluster.ProviderTenantRights...),
		cluster.Apply(ctx, control.Client, p.pool(), class()),
	); err != nil {
		return nil, err
	}
	p.health = "http://" + address + "/readyz"
	if err := f.binaries.Start(f.processes, providerProcess, process.Spec{
		Name: p.name + "-" + providerProcess, Rank: cluster.RankClients + 1, Restart: true, Args: []string{
			"--management-kubeconfig=" + onManagement, "--tenant-kubeconfig=" + inTenant, "--namespace=" + p.name, "--tenant-cluster=" + p.name,
			"--metrics-bind-address=0", "--health-probe-bind-address=" + address,
		},
	}); err != nil {
		return nil, err
	}
	return p, p.ready(ctx, 0)
}

// pid of the provider; zero if it does not run.
func (p *processTenant) pid() int { return p.fleet.pid(p.name + "-" + providerProcess) }

// ready waits until the provider is, as another process than the earlier one.
func (p *processTenant) ready(ctx context.Context, earlier int) error {
	return poll.Await(ctx, "the provider of "+p.name+" is ready", func(ctx context.Context) error {
		if p.pid() == earlier {
			return errors.New("it still runs")
		}
		return cluster.CheckURL(ctx, httpClient, p.health)
	})
}

func (p *processTenant) pool() *karpv1.NodePool {
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeReserved}},
	}
	pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	return pool
}

func class() *v1alpha1.MetalNodeClass {
	return &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
}

// want implements tenant: it makes pods that the scheduler has found no node for.
func (p *processTenant) want(ctx context.Context, count int) error {
	for range count {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "train-"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "train", Resources: corev1.ResourceRequirements{Limits: gpus, Requests: gpus},
			}}},
		}
		if err := p.control.Client.Create(ctx, pod); err != nil {
			return fmt.Errorf("creating a pod of %s, %w", p.name, err)
		}
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}
		if err := p.control.Client.Status().Update(ctx, pod); err != nil {
			return fmt.Errorf("writing the status of a pod of %s, %w", p.name, err)
		}
	}
	return nil
}

// restart implements tenant. The supervisor starts it again.
func (p *processTenant) restart(ctx context.Context) error {
	earlier := p.pid()
	if err := p.fleet.processes.Kill(p.name + "-" + providerProcess); err != nil {
		return err
	}
	if err := p.ready(ctx, earlier); err != nil {
		return err
	}
	return p.fleet.prioritize(lowest)
}

// insideTenant is a CloudProvider in this process.
type insideTenant struct {
	tenantBase
	mu       sync.Mutex
	provider *cloudprovider.CloudProvider
	// halt stops the provider.
	halt func() error
	// enough ends what is asked for.
	enough context.CancelFunc
	asked  sync.WaitGroup
}

func startInside(ctx context.Context, base tenantBase) (*insideTenant, error) {
	i := &insideTenant{tenantBase: base, enough: func() {}}
	return i, i.start(ctx)
}

func (i *insideTenant) start(ctx context.Context) error {
	ready := class()
	ready.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	inTenant := fake.NewClientBuilder().WithScheme(i.fleet.Scheme).WithObjects(ready).WithStatusSubresource(ready).
		WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).Build()
	if err := inTenant.Status().Update(ctx, ready); err != nil {
		return fmt.Errorf("making the class of %s ready, %w", i.name, err)
	}
	provider, halt, err := inprocess.Start(ctx, i.fleet.Environment, inTenant, cloudprovider.Options{
		Namespace: i.name, TenantCluster: i.name, ClaimTimeout: cloudprovider.DefaultClaimTimeout,
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.provider, i.halt = provider, halt
	return err
}

func (i *insideTenant) stop() error {
	i.enough()
	if i.halt == nil {
		return nil
	}
	return i.halt()
}

// again is when core tries once more, and makes another NodeClaim for a pod whose last one was refused.
const again = 10 * time.Second

// claim asks for a server as core does, while a type has a server left, with another NodeClaim after each refusal, until it has one or the
// context ends.
func (i *insideTenant) claim(ctx context.Context, number int) {
	limit := rate.NewLimiter(rate.Every(again), 1)
	for attempt := 0; limit.Wait(ctx) == nil; {
		name := fmt.Sprintf("burst-%05d-%d", number, attempt)
		wanted := inprocess.NodeClaim(name)
		wanted.UID = types.UID(i.name + name) // no two tenants have the same
		i.mu.Lock()
		provider := i.provider
		i.mu.Unlock()
		offered, err := provider.GetInstanceTypes(ctx, nil)
		if err != nil || !slices.ContainsFunc(offered, hasServer) {
			continue
		}
		_, err = provider.Create(ctx, wanted)
		switch {
		case err == nil:
			return
		case karpentercloud.IsInsufficientCapacityError(err):
			attempt++
		}
	}
}

func hasServer(offered *karpentercloud.InstanceType) bool {
	return len(offered.Offerings.Available()) > 0
}

// want implements tenant. The claims go on after it has returned, until the tenant is to want no more.
func (i *insideTenant) want(_ context.Context, count int) error {
	var ctx context.Context
	ctx, i.enough = context.WithCancel((&options.Options{}).ToContext(context.Background()))
	for n := range count {
		i.asked.Go(func() { i.claim(ctx, n) })
	}
	return nil
}

// restart implements tenant.
func (i *insideTenant) restart(ctx context.Context) error {
	return errors.Join(i.stop(), i.start(ctx))
}

// release gives the servers of a burst back.
func (i *insideTenant) release(ctx context.Context) error {
	i.enough()
	i.asked.Wait()
	machines := &v1alpha1.MachineList{}
	if err := i.fleet.Client.List(ctx, machines, client.InNamespace(i.name)); err != nil {
		return fmt.Errorf("listing the Machines of %s, %w", i.name, err)
	}
	var errs []error
	for n := range machines.Items {
		if machine := &machines.Items[n]; strings.HasPrefix(machine.Name, "burst-") {
			errs = append(errs, client.IgnoreNotFound(i.fleet.Client.Delete(ctx, machine)))
		}
	}
	return errors.Join(errs...)
}
