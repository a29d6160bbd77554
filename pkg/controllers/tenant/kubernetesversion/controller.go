// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubernetesversion decides which minor version of Kubernetes a tenant's servers follow: the least answer of
// its API servers within ten minutes. These are upgraded one by one, and no kubelet may be newer than any.
package kubernetesversion

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// window is how long no API server may answer with a version before the servers follow a newer one.
	window = 10 * time.Minute
	// period is how often the tenant is asked.
	period = 30 * time.Second
	// maxElapsed is how much of the window may pass between two answers. During a change of the clock, a stop of the
	// process or an outage of the tenant, nobody has looked.
	maxElapsed = time.Minute
	// timeout is how long one answer may take.
	timeout = 10 * time.Second
)

// Controller asks a tenant for its version, and keeps the least version in the status of the TenantCluster.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	http     *http.Client
	api      *discovery.DiscoveryClient

	// lock makes callers wait for a running request.
	lock sync.Mutex
	// answered is the time of the last answer. least is the result, or empty if the status does not have it.
	answered time.Time
	least    string
	// versions are the versions that count, the least first. They are not stored: a restart begins the window again.
	versions []seen
}

// seen is a version that the tenant has answered with.
type seen struct {
	minor  string
	parsed *version.Version
	// missing is for how long there were only other answers.
	missing time.Duration
}

// NewController constructs a controller. config is for the tenant's cluster.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters, config *rest.Config) (*Controller, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	config.NextProtos = []string{"http/1.1"} // nobody else uses it, so no connections are shared
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the tenant cluster, %w", err)
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a client of the tenant cluster, %w", err)
	}
	return &Controller{clock: clk, clusters: clusters, http: httpClient, api: api}, nil
}

// Least returns the minor version that a server may be installed with now, for example v1.35. It returns an error if
// the version is not known, or could not be stored.
func (c *Controller) Least(ctx context.Context) (string, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if age := c.clock.Since(c.answered); c.least != "" && age >= 0 && age < period {
		return c.least, nil
	}
	c.least = ""
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.clusters.Management.Live, c.clusters.TenantCluster, cluster)
	if err != nil {
		return "", err
	}
	answer, err := c.ask()
	if err != nil {
		return "", err
	}
	parsed, err := version.ParseGeneric(answer)
	if err != nil {
		return answer, nil // it cannot be compared: no node is older, and none can be installed with it
	}
	now := c.clock.Now()
	for i := range c.versions {
		c.versions[i].missing += min(max(now.Sub(c.answered), 0), maxElapsed)
	}
	c.answered = now
	if stored, err := version.ParseGeneric(cluster.Status.KubernetesVersion); err == nil {
		c.place(cluster.Status.KubernetesVersion, stored)
	}
	c.versions[c.place(answer, parsed)].missing = 0
	left := slices.DeleteFunc(slices.Clone(c.versions), func(s seen) bool { return s.missing >= window })
	least := left[0].minor
	if before := cluster.DeepCopy(); found && before.Status.KubernetesVersion != least {
		cluster.Status.KubernetesVersion = least
		if err := kube.PatchStatus(ctx, c.clusters.Management.Client, before, cluster); err != nil {
			return "", err
		}
	}
	c.versions, c.least = left, least
	return least, nil
}

// place returns the index of a version in versions, and adds the version if it is new.
func (c *Controller) place(minor string, parsed *version.Version) int {
	index, exists := slices.BinarySearchFunc(c.versions, parsed, func(s seen, parsed *version.Version) int {
		switch {
		case s.parsed.LessThan(parsed):
			return -1
		case parsed.LessThan(s.parsed):
			return 1
		}
		return 0
	})
	if !exists {
		c.versions = slices.Insert(c.versions, index, seen{minor: minor, parsed: parsed})
	}
	return index
}

var leadingDigits = regexp.MustCompile(`^[0-9]+`)

// ask returns the minor version of an API server of the tenant. Each request has a connection of its own: a load
// balancer chooses an API server for each connection.
func (c *Controller) ask() (string, error) {
	defer utilnet.CloseIdleConnectionsFor(c.http.Transport)
	answer, err := c.api.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("asking the tenant cluster for its version, %w", err)
	}
	// Some distributions write "35+".
	return "v" + answer.Major + "." + leadingDigits.FindString(answer.Minor), nil
}

// Reconcile asks in time, even while no server joins and nobody looks at a node.
func (c *Controller) Reconcile(ctx context.Context) (reconciler.Result, error) {
	if _, err := c.Least(ctx); err != nil {
		if apierrors.IsConflict(err) { // another client's write
			return reconciler.Result{RequeueAfter: kube.ConflictRetry}, nil
		}
		return reconciler.Result{}, err
	}
	return reconciler.Result{RequeueAfter: period}, nil
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("tenant.kubernetesversion").
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(c))
}
