// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Times of leader election. They are shorter than usual, so that who comes after a process that was killed need not
// wait long; an API server that is slow does not end a leadership anyway.
const (
	// LeaseDuration is how long the lease of a leader that is not heard of any more is respected.
	LeaseDuration = 8 * time.Second
	// LeaseRenewDeadline is how long a leader tries to renew before it gives up.
	LeaseRenewDeadline = 5 * time.Second
	// LeaseRetryPeriod is the time between tries.
	LeaseRetryPeriod = 2 * time.Second
	// leaseTimeout is how long one request about the lease may take.
	leaseTimeout = 2 * time.Second
)

// NewLeaderLock returns a lock for leader election on the Lease namespace/name that outlives an API server that goes
// away: a leader which cannot reach the API server stays leader, and finds out whether somebody else has taken over as
// soon as it can. Until it can it writes nothing either, and what it may write in the moment between is safe as long as
// every write that matters is a compare-and-swap. With the usual lock every process would exit a few seconds into the
// outage, and fail to start again until it is over.
func NewLeaderLock(config *rest.Config, namespace, name string) (resourcelock.Interface, error) {
	config = rest.AddUserAgent(config, "leader-election") // a copy
	config.Timeout = leaseTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for leader election, %w", err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding out the name of this machine for leader election, %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: hostname + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, name, client.CoreV1(), client.CoordinationV1(), identity)
	if err != nil {
		return nil, fmt.Errorf("making the lock for leader election, %w", err)
	}
	return &patientLock{Interface: lock}, nil
}

// patientLock is used by one elector, which calls it from one goroutine at a time.
type patientLock struct {
	resourcelock.Interface
	// held is true from the moment that the lease was ours until it is seen to be somebody else's.
	held bool
}

// Get reads the lease.
func (p *patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := p.Interface.Get(ctx)
	if err == nil {
		p.held = record.HolderIdentity == p.Identity()
	}
	return record, raw, err
}

// Create makes the lease, held by this process.
func (p *patientLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := p.Interface.Create(ctx, record)
	p.held = err == nil
	return err
}

// Update takes, renews or gives up the lease. Renewing succeeds although the API server does not answer. The first
// renewal after an outage is a compare-and-swap on the version that was seen last, so that it fails if somebody else
// has taken the lease meanwhile.
func (p *patientLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := p.Interface.Update(ctx, record)
	renews := p.held && record.HolderIdentity == p.Identity()
	// A conflict or a lease that is gone is an answer: somebody else may be leader. Everything else is not, not even
	// "forbidden", which is what an API server says that has just started and does not know its roles yet.
	if err != nil && renews && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("The lease cannot be renewed now; going on", "lease", p.Describe(), "err", err.Error())
		return nil
	}
	if err == nil {
		p.held = record.HolderIdentity == p.Identity()
	}
	return err
}
