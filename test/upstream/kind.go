// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
)

//go:embed manifests/kind.yaml
var kindFile []byte

// Names that Karpenter's suites take for granted.
const (
	karpenterInstance = "karpenter"
	karpenterLease    = "karpenter-leader-election"
)

// schedulerOfKind is the configuration of the scheduler in Karpenter's kind cluster. Its specs are compiled with it, too.
func schedulerOfKind(ctx context.Context) ([]byte, error) {
	source, err := karpenterSource(ctx)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(source, "test", "suites", "regression", "testdata", "kube-scheduler-config.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration of the scheduler in Karpenter's kind cluster, %w", err)
	}
	return content, nil
}

// joining is the startup taint of the default pool.
var joining = corev1.Taint{Key: "conformance.example.com/joining", Effect: corev1.TaintEffectNoSchedule}

// kind makes the tenant what specs expect of Karpenter's kind cluster. It has a Node on which kwok has pods run: the pod of
// the scheduler, and the pods of a Deployment of Karpenter. The provider runs with the environment of the Deployment's pod,
// as if it were its process.
//
// The nodes of Karpenter's own provider come at one time, and here one after the other. kube-scheduler spreads pods over the
// nodes that it knows, so that all would be on the first one. The default pool has a startup taint, which is taken off once
// all nodes are there.
type kind struct {
	box    *sandbox.Sandbox
	tenant client.Client
	// environment is that of the provider, and leader the pod that the lease names.
	environment []string
	leader      string
}

func newKind(ctx context.Context, box *sandbox.Sandbox) (*kind, error) {
	tenant, err := client.New(box.TenantConfig(), client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to the tenant cluster, %w", err)
	}
	objects, err := examples.Parse("manifests/kind.yaml", kindFile)
	if err != nil {
		return nil, err
	}
	k := &kind{box: box, tenant: tenant}
	if err := examples.ApplyAll(ctx, tenant, objects); err != nil {
		return nil, err
	}
	return k, cluster.Await(ctx, "the stand-in for Karpenter's pod to lead", func(ctx context.Context) error {
		if err := k.follow(ctx); err != nil {
			return err
		}
		if k.leader == "" {
			return errors.New("no pod is ready")
		}
		return nil
	})
}

var errSuiteRuns = errors.New("the suite runs")

// run follows the Deployment until the context ends.
func (k *kind) run(ctx context.Context) (failed error) {
	_ = poll.Until(ctx, func(ctx context.Context) error {
		if failed = errors.Join(k.follow(ctx), k.open(ctx)); failed != nil {
			return nil
		}
		return errSuiteRuns
	})
	if ctx.Err() != nil {
		return nil
	}
	return failed
}

// follow starts the provider again if the pod of the Deployment has another environment, and then makes that pod the leader. The Deployment
// recreates its pod: there are never two.
func (k *kind) follow(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := k.tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"app.kubernetes.io/instance": karpenterInstance}); err != nil {
		return fmt.Errorf("listing the pods of the stand-in for Karpenter, %w", err)
	}
	ready := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
	})
	if ready < 0 || pods.Items[ready].Name == k.leader {
		return nil
	}
	pod := &pods.Items[ready]
	var environment []string
	for _, variable := range pod.Spec.Containers[0].Env {
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	if !slices.Equal(environment, k.environment) {
		if err := k.restart(ctx, environment); err != nil {
			return err
		}
	}
	if err := cluster.Apply(ctx, k.tenant, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: karpenterLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(pod.Name + "_1")},
	}); err != nil {
		return err
	}
	k.leader = pod.Name
	return nil
}

// restart starts the provider again with another environment, and returns when it is ready.
func (k *kind) restart(ctx context.Context, environment []string) error {
	processes := k.box.Processes()
	spec, err := processes.Spec(sandbox.ProviderName)
	if err != nil {
		return err
	}
	spec.Env = environment
	if err := errors.Join(processes.Stop(sandbox.ProviderName), processes.Start(spec)); err != nil {
		return err
	}
	k.environment = environment
	return cluster.Await(ctx, "the provider to be ready with other settings", func(ctx context.Context) error {
		return cluster.CheckReady(ctx, processes, sandbox.ProviderName)
	})
}

// open takes the startup taint off the nodes once each NodeClaim has a node that has no other taint.
func (k *kind) open(ctx context.Context) error {
	claims, nodes := &karpv1.NodeClaimList{}, &corev1.NodeList{}
	if err := errors.Join(k.tenant.List(ctx, claims), k.tenant.List(ctx, nodes)); err != nil {
		return fmt.Errorf("listing the servers that join, %w", err)
	}
	waiting := map[string]*corev1.Node{}
	for i := range nodes.Items {
		if taints := nodes.Items[i].Spec.Taints; len(taints) == 1 && taints[0].MatchTaint(&joining) {
			waiting[nodes.Items[i].Name] = &nodes.Items[i]
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.DeletionTimestamp.IsZero() && !claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() &&
			waiting[claim.Status.NodeName] == nil {
			return nil
		}
	}
	for _, node := range waiting {
		before := node.DeepCopy()
		node.Spec.Taints = nil
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		// A Node that has changed is opened next time.
		if err := client.IgnoreNotFound(k.tenant.Patch(ctx, node, patch)); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("taking the startup taint off Node %s, %w", node.Name, err)
		}
	}
	return nil
}
