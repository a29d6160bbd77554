// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Lease is the object that elects a leader.
type Lease struct {
	// Config reaches the cluster of the lease, which may differ from the manager's cluster.
	Config *rest.Config
	// Namespace and Name of the lease.
	Namespace, Name string
}

// NewManager returns a manager that serves metrics, profiles and probes according to the options, is ready once its
// cache is synced, and works while it holds the lease. A nil lease means no leader election.
func (o *Options) NewManager(config *rest.Config, options manager.Options, lease *Lease) (manager.Manager, error) {
	options.Metrics = metricsserver.Options{BindAddress: o.MetricsAddress}
	if o.MetricsSecure {
		options.Metrics.SecureServing = true
		options.Metrics.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.NextProtos = []string{"http/1.1"} }}
		options.Metrics.FilterProvider = o.review
	}
	options.HealthProbeBindAddress = o.HealthAddress
	options.PprofBindAddress = o.PprofAddress
	if options.Cache.DefaultTransform == nil {
		options.Cache.DefaultTransform = TrimObject
	}
	if leader := o.LeaderElection; leader != nil && leader.Enabled {
		lock, err := lease.lock(leader)
		if err != nil {
			return nil, err
		}
		options.LeaderElection = true
		options.LeaderElectionReleaseOnCancel = true // the process ends when Start returns
		options.LeaderElectionResourceLockInterface = lock
		options.LeaderElectionID = lease.Name // label name of leader_election_master_status
		options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &leader.LeaseDuration, &leader.RenewDeadline, &leader.RetryPeriod
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("creating the controller manager, %w", err)
	}
	if err := errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", CacheSynced(mgr.GetCache())),
	); err != nil {
		return nil, fmt.Errorf("adding the probes, %w", err)
	}
	return mgr, nil
}

// lock makes controller-runtime's lock without its events: the manager's recorder may belong to another cluster, which
// need not have the lease's namespace.
func (l *Lease) lock(leader *LeaderElection) (resourcelock.Interface, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the hostname for leader election, %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, l.Namespace, l.Name,
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())}, l.Config, leader.RenewDeadline)
	if err != nil {
		return nil, fmt.Errorf("creating the lock for leader election, %w", err)
	}
	return lock, nil
}

// WithClient returns the manager with another client. It is for controllers of other modules, which take their client
// from the manager at registration. So one of them can get a wrapped client, and the others keep theirs.
func WithClient(m manager.Manager, c client.Client) manager.Manager {
	return &managerWithClient{Manager: m, client: c}
}

type managerWithClient struct {
	manager.Manager
	client client.Client
}

// GetClient implements manager.Manager.
func (m *managerWithClient) GetClient() client.Client { return m.client }

// ManagementScheme returns the kinds of the management cluster: Kubernetes', Metal3's and ours.
func ManagementScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	return scheme
}

// ManagementKinds returns BareMetalHost and the given kinds of ours, for Preflight.
func ManagementKinds(ours ...string) []Kind {
	kinds := []Kind{{GroupVersionKind: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), Remedy: "install baremetal-operator's CRDs"}}
	for _, kind := range ours {
		kinds = append(kinds, Kind{GroupVersionKind: v1alpha1.GroupVersion.WithKind(kind), Remedy: "install this project's CRDs (pkg/apis/crds)"})
	}
	return kinds
}

// probeTimeout is how long a readiness probe waits for caches that are not synced.
const probeTimeout = time.Second

// TrimObject is a transform for caches. It drops the bookkeeping of server-side apply and kubectl, which no program
// here reads. It can be half of an object, and kubectl's is a copy of the whole object, even of a Secret.
func TrimObject(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil // a tombstone: there is nothing to trim
	}
	accessor.SetManagedFields(nil)
	if annotations := accessor.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		accessor.SetAnnotations(annotations)
	}
	return object, nil
}

// TrimAlso is TrimObject for a cache of one kind with more parts to drop.
func TrimAlso[T any](trim func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			trim(typed)
		}
		return TrimObject(object)
	}
}

// CacheSynced returns a readiness probe that fails until the caches have all objects that existed at the start.
func CacheSynced(caches interface{ WaitForCacheSync(context.Context) bool }) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), probeTimeout)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
}
