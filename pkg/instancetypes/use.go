// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import "time"

// unusedAfter is how long nobody must have asked for a topology label before servers are not told apart by it any more.
const unusedAfter = 10 * time.Minute

// Use says that pods or NodePools ask for these labels now. Domains are offered by the labels that are in use only: to
// core each is one more thing to look at for each pod, and a fleet of a hundred types in fifty racks has thousands. A
// claim for a label that is not in use draws from all servers of its type, wherever they are.
func (c *Catalog) Use(keys []string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for _, key := range keys {
		_, known := c.used[key]
		c.used[key] = now
		changed = changed || !known
	}
	for key, last := range c.used {
		if now.Sub(last) > unusedAfter {
			delete(c.used, key)
			changed = true
		}
	}
	if !changed {
		return
	}
	for _, entry := range c.types {
		entry.converted = nil
	}
	c.current.Store(nil)
}

// inUse tells whether somebody asks for a label. The caller holds the lock.
func (c *Catalog) inUse(key string) bool {
	_, used := c.used[key]
	return used
}
