// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
)

// changed are the names of the types whose hosts or profile a change concerns.
type changed map[string]struct{}

func (c changed) add(name string) {
	if name != "" {
		c[name] = struct{}{}
	}
}

// notify calls the listeners with what has changed. The lock must not be held: they may ask for summaries.
func (i *Inventory) notify(changed changed) {
	if len(changed) > 0 {
		i.notifyNames(slices.Sorted(maps.Keys(changed)))
	}
}

func (i *Inventory) notifyNames(names []string) {
	i.listening.RLock()
	defer i.listening.RUnlock()
	for _, listener := range i.listeners {
		listener(names)
	}
}
