// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

const (
	// maxCopy limits the size of a copy as JSON, in bytes. Device selectors alone may have 10 MiB.
	maxCopy = 64 << 10
	// roomRetry is how often an object without room for its copy is checked again. No event tells when there is room.
	roomRetry = time.Minute
)

// errNoCopy means that an object gets no copy. An event has already said why.
var errNoCopy = errors.New("no copy is made")

// admit checks an object before its first copy, and counts the copy. It limits what a tenant stores on the host,
// because only the tenant's API server limits the object itself. It returns errNoCopy if there must be no copy.
func (c *CopyController[T]) admit(ctx context.Context, s policy.Settings, object, copied T) error {
	refuse := func(reason, cause string) error {
		c.notInSync(object, reason, cause)
		return errNoCopy
	}
	if driver := s.OpaqueNotAllowed(c.kind.spec(object)); driver != "" {
		return refuse(ReasonOpaqueConfigNotAllowed, fmt.Sprintf("spec.devices.config has opaque configuration for driver %s, which would "+
			"read it on the host: remove it, or ask the platform's administrator to name the driver in 'sync.toHost.opaqueConfigDrivers'",
			driver))
	}
	encoded, err := json.Marshal(copied)
	if err != nil {
		return fmt.Errorf("encoding the copy, %w", err)
	}
	if len(encoded) > maxCopy {
		return refuse(ReasonTooLarge, fmt.Sprintf("its copy would have %d bytes, and may have %d: shorten its selectors and configuration",
			len(encoded), maxCopy))
	}
	limit := s.MaxCopies(c.kind.sync(&s.Sync))
	c.counting.Lock()
	defer c.counting.Unlock()
	count, err := c.copies(ctx)
	if err != nil {
		return err
	}
	if count >= limit {
		field := strings.ToLower(c.kind.Kind[:1]) + c.kind.Kind[1:] + "s"
		return refuse(ReasonTooManyCopies, fmt.Sprintf("this cluster has %d %ss on the host, and may have %d: delete some, or ask the "+
			"platform's administrator for a higher 'sync.toHost.%s.max'", count, c.kind.Kind, limit, field))
	}
	c.created.Store(client.ObjectKeyFromObject(object), copied.GetName())
	return nil
}

// copies counts the tenant's objects on the host: the objects in the cache that names.Counts counts, and the copies
// that this process has created and the cache does not have yet.
func (c *CopyController[T]) copies(ctx context.Context) (int, error) {
	list := c.kind.list()
	if err := c.clusters.Management.Client.List(ctx, list, client.InNamespace(c.clusters.TenantCluster.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("counting the copies on the host, %w", err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return 0, fmt.Errorf("counting the copies on the host, %w", err)
	}
	all := sets.New[string]()
	for _, listed := range objects {
		if object := listed.(client.Object); names.Counts(object, c.clusters.TenantCluster.Name) {
			all.Insert(object.GetName())
		}
	}
	c.created.Range(func(_, name any) bool {
		all.Insert(name.(string))
		return true
	})
	return all.Len(), nil
}
