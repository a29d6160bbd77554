// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// domains are the host labels that group racks.
type domains struct {
	// levels are labels whose domains contain several racks. They are drawn as outlines. Labels with the fewest
	// domains come first, as a spine surrounds its blocks.
	levels []string
	// inside are labels that are written in the racks: a rack has several values of them, or each rack has its own
	// value.
	inside []string
}

// domainsOf assigns each label to levels or inside. A label with the same value on all servers tells nothing and is
// left out.
func domainsOf(servers []view.Server, labels []string) (found domains) {
	count, rackOf := map[string]int{}, make([]string, len(servers))
	for i := range servers {
		rackOf[i] = rackKey(servers[i])
	}
	for _, label := range labels {
		if label == v1alpha1.RackLabelKey {
			continue
		}
		racks, values, divided, whole := map[string]map[string]bool{}, map[string]string{}, false, true
		for i := range servers {
			value, rack := servers[i].Labels[label], rackOf[i]
			whole = whole && value == servers[0].Labels[label]
			if value == "" || servers[i].Rack == "" {
				continue
			}
			if racks[value] == nil {
				racks[value] = map[string]bool{}
			}
			racks[value][rack] = true
			divided = divided || values[rack] != "" && values[rack] != value
			values[rack] = value
		}
		several := false
		for _, together := range racks {
			several = several || len(together) > 1
		}
		count[label] = len(racks)
		switch {
		case whole:
		case divided || !several:
			found.inside = append(found.inside, label)
		default:
			found.levels = append(found.levels, label)
		}
	}
	slices.SortFunc(found.levels, func(a, b string) int { return cmp.Or(cmp.Compare(count[a], count[b]), strings.Compare(a, b)) })
	return found
}

// rackKey distinguishes racks of the same name in several zones.
func rackKey(server view.Server) string { return server.Zone + "/" + server.Rack }

// sort orders servers by their domains, servers without a domain last. Otherwise it keeps their order.
func (d domains) sort(servers []view.Server) []view.Server {
	if len(d.levels) == 0 {
		return servers
	}
	sorted := slices.Clone(servers)
	slices.SortStableFunc(sorted, func(a, b view.Server) int {
		for _, level := range d.levels {
			first, second := a.Labels[level], b.Labels[level]
			if first == second {
				continue
			}
			if first == "" || second == "" {
				return cmp.Compare(len(second), len(first))
			}
			return view.CompareNames(first, second)
		}
		return 0
	})
	return sorted
}

// path returns the domains that contain a server, from the outermost to the innermost.
func (d domains) path(server view.Server) (path []string) {
	for _, level := range d.levels {
		path = append(path, server.Labels[level])
	}
	return path
}

// written returns the values of the labels inside for the rack of these servers, as "nvlink-domain n1, n2".
func (d domains) written(servers []view.Server) (all []string) {
	for _, label := range d.inside {
		var values []string
		for i := range servers {
			if value := servers[i].Labels[label]; value != "" && !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
		if len(values) > 0 {
			slices.SortFunc(values, view.CompareNames)
			all = append(all, label+" "+strings.Join(values, ", "))
		}
	}
	return all
}

type domain struct{ Path, Label, Name string }

// outline draws the domains along a path, unless they are drawn already, and returns the slot in the innermost
// domain.
func (d *drawing) outline(levels, path []string) (place string, err error) {
	place = "main"
	for i, name := range path {
		if name == "" {
			continue
		}
		drawn := domain{Path: strings.Join(path[:i+1], "/"), Label: levels[i], Name: name}
		inner := "main/" + drawn.Path
		if d.slot(inner) == nil {
			if err := d.add(place, "domain", drawn, drawn.Path); err != nil {
				return "", err
			}
			outer, inside := d.slot(place), &slot{Name: inner}
			outer.Parts[len(outer.Parts)-1].Inside = inside
			d.Slots = append(d.Slots, inside)
		}
		place = inner
	}
	return place, nil
}
