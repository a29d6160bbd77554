// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"slices"
)

// gains remembers what the listener has been told, and requests that were refused.
type gains struct {
	told    []Gain
	waiting []refused
}

type refused struct {
	request Request
	why     *NoHostError
}

func (g *gains) take(gain Gain) { g.told = append(g.told, gain) }

// refused makes a request for nobody, and reports whether there is no host for it.
func (f fleet) refused(inventory *Inventory) (refused, bool) {
	request := f.request()
	request.Machine = ""
	_, err := inventory.Choose(request)
	var why *NoHostError
	found := errors.As(err, &why)
	return refused{request, why}, found
}

// forgotten describes a request that can be served now, could not be before, and is among nobody's gains.
func (g *gains) forgotten(inventory *Inventory) string {
	told := g.told
	g.told = nil
	var still []refused
	for _, one := range g.waiting {
		_, err := inventory.Choose(one.request)
		var why *NoHostError
		if errors.As(err, &why) {
			still = append(still, refused{one.request, why})
			continue
		}
		if !slices.ContainsFunc(told, func(gain Gain) bool { return gain.serves(one.why) }) {
			return fmt.Sprintf("%+v was refused (%v) and can be served, and the listener has been told only of %+v", one.request, one.why, told)
		}
	}
	if len(still) > 50 {
		still = still[len(still)-50:]
	}
	g.waiting = still
	return ""
}

func (g Gain) serves(why *NoHostError) bool {
	if g.Profiles {
		return true
	}
	if why.ServerName != "" {
		return slices.Contains(g.Servers, why.ServerName) || slices.ContainsFunc(why.Awaits, func(name string) bool { return slices.Contains(g.Room, name) })
	}
	return slices.ContainsFunc(why.Awaits, func(name string) bool { return g.Types[name] > 0 })
}
