// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// SyncPods emulates vCluster's pod syncer for a tenant until the Environment is closed: it copies the tenant's pods to
// the host, copies their status back, and deletes the copies with the pods.
func (t *Tenant) SyncPods() error {
	w := t.environment
	mgr, err := ctrl.NewManager(t.REST, ctrl.Options{Scheme: w.scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("setting up the pod syncer of %s, %w", t.Name, err)
	}
	host, err := cluster.New(w.Host.REST, func(options *cluster.Options) {
		options.Scheme = w.scheme
		options.Cache.DefaultNamespaces = map[string]cache.Config{t.Name: {}}
	})
	if err != nil {
		return fmt.Errorf("setting up the pod syncer of %s, %w", t.Name, err)
	}
	if err := mgr.Add(host); err != nil {
		return fmt.Errorf("setting up the pod syncer of %s, %w", t.Name, err)
	}
	// As in vCluster, annotations of the copy name the tenant's pod.
	origin := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, pod *corev1.Pod) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{
			Namespace: pod.Annotations[names.NamespaceAnnotation], Name: pod.Annotations[names.NameAnnotation],
		}}}
	})
	err = ctrl.NewControllerManagedBy(mgr).
		Named("pods-of-" + t.Name).
		For(&corev1.Pod{}).
		WatchesRawSource(source.Kind(host.GetCache(), &corev1.Pod{}, origin)).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		Complete(&podSyncer{tenant: t.Name, virtual: t.Client, host: w.Host.Client})
	if err != nil {
		return fmt.Errorf("setting up the pod syncer of %s, %w", t.Name, err)
	}
	w.background.Go(func() error { return mgr.Start(w.ctx) })
	return nil
}

type podSyncer struct {
	tenant        string
	virtual, host client.Client
}

// Reconcile updates the host's copy of a tenant's pod, and the pod's status from the copy.
func (s *podSyncer) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name, err := names.HostName(request.Name, request.Namespace, s.tenant)
	if err != nil {
		return reconcile.Result{}, nil
	}
	pod, copied := &corev1.Pod{}, &corev1.Pod{}
	err = s.virtual.Get(ctx, request.NamespacedName, pod)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	gone := err != nil || !pod.DeletionTimestamp.IsZero()
	err = s.host.Get(ctx, client.ObjectKey{Namespace: s.tenant, Name: name}, copied)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	missing := err != nil
	switch {
	case gone && missing:
		return reconcile.Result{}, nil
	case gone:
		return reconcile.Result{}, client.IgnoreNotFound(s.host.Delete(ctx, copied))
	case missing:
		copied, err := s.translate(pod)
		if err != nil {
			return reconcile.Result{}, err
		}
		if err := s.host.Create(ctx, copied); err != nil && !apierrors.IsAlreadyExists(err) {
			return reconcile.Result{}, fmt.Errorf("creating pod %s on the host, %w", copied.Name, err)
		}
		return reconcile.Result{}, nil
	case equality.Semantic.DeepEqual(pod.Status, copied.Status):
		return reconcile.Result{}, nil
	default:
		pod.Status = copied.Status
		if err := s.virtual.Status().Update(ctx, pod); apierrors.IsConflict(err) {
			return reconcile.Result{}, nil // the conflicting write triggers another reconcile
		} else if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, nil
	}
}

// translate returns the host's copy of a pod, with vCluster's names, labels and annotations, and the host's names of
// claims and templates.
func (s *podSyncer) translate(pod *corev1.Pod) (*corev1.Pod, error) {
	name, err := names.HostName(pod.Name, pod.Namespace, s.tenant)
	if err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: s.tenant, Name: name}
	metadata := names.HostMetadata(pod, names.PodKind, key, s.tenant, names.Metadata{})
	copied := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: metadata.Labels, Annotations: metadata.Annotations},
		Spec:       *pod.Spec.DeepCopy(),
	}
	// The annotations that only pods have, and the one that they do not have.
	delete(copied.Annotations, names.ManagedLabelsAnnotation)
	maps.Copy(copied.Annotations, map[string]string{
		"vcluster.loft.sh/name": pod.Name, "vcluster.loft.sh/namespace": pod.Namespace, "vcluster.loft.sh/uid": string(pod.UID),
	})
	copied.Spec.ServiceAccountName, copied.Spec.DeprecatedServiceAccount = "", ""
	copied.Spec.AutomountServiceAccountToken, copied.Spec.EnableServiceLinks = ptr.To(false), ptr.To(false)
	// Admission adds it again on the host.
	copied.Spec.Volumes = nil
	for i := range copied.Spec.Containers {
		copied.Spec.Containers[i].VolumeMounts = nil
	}
	for i := range copied.Spec.ResourceClaims {
		for _, reference := range []*string{copied.Spec.ResourceClaims[i].ResourceClaimName,
			copied.Spec.ResourceClaims[i].ResourceClaimTemplateName} {
			if reference == nil {
				continue
			}
			if *reference, err = names.HostNameShort(*reference, pod.Namespace, s.tenant); err != nil {
				return nil, err
			}
		}
	}
	return copied, nil
}
