// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
)

const (
	// DefaultUnusedClaimsPerHour is one claim every ten seconds. A claim that comes to nothing is written into the
	// record of its server, the Machine and the BareMetalHost. docs/capacity-planning.md has the bytes.
	DefaultUnusedClaimsPerHour = 360
	// minUnusedClaims is how many claims of a namespace may be unused at a time, whatever its quota.
	minUnusedClaims = 100
)

// claimRate bounds how often a namespace claims servers and gives them back before they are installed. A claim counts
// until its server is installed, or until the hourly rate has made up for it. Up to twice as many claims may count as
// the namespace may have servers: it may request all of them at once, give them up before they are installed, and
// request them again. The bound never delays a namespace that uses its servers: there are no more open claims than
// servers, and cleaning bounds how often an installed server is claimed.
type claimRate struct {
	// perHour is the rate. Zero means no bound.
	perHour    int
	lock       sync.Mutex
	namespaces map[string]*unusedClaims
}

// unusedClaims counts the unused claims of a namespace.
type unusedClaims struct {
	// count is how many claims count now. It decreases at the hourly rate.
	count float64
	since time.Time
	// limit is the limit that the last refused Machine exceeded; zero if no Machine was refused since the last claim.
	limit float64
	// open are the Machines whose claims count, by name. Their servers may not be installed yet.
	open map[string]types.UID
}

func claimsAllowed(namespace string) scheduling.Event {
	return scheduling.Event{Kind: scheduling.ClaimsAllowed, Of: namespace}
}

// counted returns the claims of a namespace that count now. The caller must hold the lock.
func (c *claimRate) counted(namespace string, now time.Time) *unusedClaims {
	unused := c.namespaces[namespace]
	if unused == nil {
		unused = &unusedClaims{open: map[string]types.UID{}}
		c.namespaces[namespace] = unused
	}
	if passed := now.Sub(unused.since); passed > 0 {
		unused.count = max(0, unused.count-passed.Hours()*float64(c.perHour))
	}
	unused.since = now
	return unused
}

// check returns why a Machine may not claim a server now, or nil if it may. allowance returns how many servers the
// namespace may have. check calls it only if the answer matters.
func (c *claimRate) check(
	machine types.NamespacedName, uid types.UID, now time.Time, allowance func() (int64, error),
) (*unschedulable, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.perHour == 0 {
		return nil, nil
	}
	unused := c.counted(machine.Namespace, now)
	if unused.open[machine.Name] == uid || unused.count+1 <= minUnusedClaims {
		return nil, nil
	}
	allowed, err := allowance()
	if err != nil {
		return nil, err
	}
	limit := max(minUnusedClaims, 2*float64(allowed))
	if unused.count+1 <= limit {
		return nil, nil
	}
	unused.limit = limit
	until := now.Add(time.Duration((unused.count + 1 - limit) / float64(c.perHour) * float64(time.Hour)))
	return &unschedulable{reason: v1alpha1.ReasonTooManyClaims, alike: true,
		hints: []scheduling.Event{objectChanged, claimsAllowed(machine.Namespace)},
		message: fmt.Sprintf("namespace %s has %.0f claims of servers that were not installed, or are not yet: it gets the next one at %s, and "+
			"%d an hour from then on", machine.Namespace, unused.count, until.UTC().Format(time.RFC3339), c.perHour)}, nil
}

// claimed counts the claim of a Machine, once.
func (c *claimRate) claimed(machine types.NamespacedName, uid types.UID, now time.Time) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if unused := c.counted(machine.Namespace, now); c.perHour > 0 && unused.open[machine.Name] != uid {
		unused.open[machine.Name] = uid
		unused.count++
	}
}

// uncount ends the count of a claim: its server is installed, or was not claimed after all.
func (c *claimRate) uncount(machine types.NamespacedName, uid types.UID, now time.Time) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if unused := c.counted(machine.Namespace, now); unused.open[machine.Name] == uid {
		delete(unused.open, machine.Name)
		unused.count = max(0, unused.count-1)
	}
}

// vanished notes that a Machine does not exist any more. Its claim still counts.
func (c *claimRate) vanished(machine types.NamespacedName) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if unused := c.namespaces[machine.Namespace]; unused != nil {
		delete(unused.open, machine.Name)
	}
}

// allowed returns the namespaces that were refused a claim and may have one now. It forgets the idle ones.
func (c *claimRate) allowed(now time.Time) (namespaces []string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for namespace := range c.namespaces {
		unused := c.counted(namespace, now)
		if unused.limit > 0 && unused.count+1 <= unused.limit {
			unused.limit = 0
			namespaces = append(namespaces, namespace)
		}
		if unused.count == 0 && len(unused.open) == 0 {
			delete(c.namespaces, namespace)
		}
	}
	return namespaces
}

// allowance returns a function that counts how many servers a namespace may have.
func (s *scheduler) allowance(ctx context.Context, namespace string) func() (int64, error) {
	return func() (int64, error) {
		tenants, err := s.objects.tenants(ctx, namespace)
		if err != nil {
			return 0, err
		}
		nodeTypes, _, err := s.objects.Types(ctx)
		return quota.Allowance(tenants, nodeTypes, s.inventory.Total), err
	}
}
