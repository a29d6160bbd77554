// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

const (
	// maxLarge is how many servers are drawn with all details, and maxTiles how many are drawn with their names. More
	// servers are dots, and each rack of dots is a link to its servers.
	maxLarge = 60
	maxTiles = 1000
	// maxWaiting is how many reasons to wait are explained.
	maxWaiting = 40
	// maxNames is how many objects with the same reason to wait are named.
	maxNames = 8
	// maxIssues is how many issues are listed.
	maxIssues = 200
	// maxUses is how many uses of a server are listed.
	maxUses = 50
	// mapWidth is how many dots a line has.
	mapWidth = 10
)

// rack is the servers of a rack, as they are drawn.
type rack struct {
	*rendered
	// Path consists of the rack's domains, zone and name.
	Path, Zone, Rack string
	// Inside are the domains that are written in the rack.
	Inside  []string
	Servers []view.Server
	States  []stateCount
	// Large and Dots are how the servers are drawn. If neither is set, each is a tile with a name.
	Large, Dots bool
	machines    map[string]view.Machine
	// changes says what would become of a server, by its namespace and name.
	changes map[string]string
}

type stateCount struct {
	State view.State
	Count int
}

func countStates(servers []view.Server) []stateCount {
	count := map[view.State]int{}
	for i := range servers {
		count[servers[i].State]++
	}
	var all []stateCount
	for _, state := range states {
		if count[state.State] > 0 {
			all = append(all, stateCount{state.State, count[state.State]})
			delete(count, state.State)
		}
	}
	for _, state := range slices.Sorted(maps.Keys(count)) {
		all = append(all, stateCount{state, count[state]})
	}
	return all
}

// groupOf returns the index of a state's group in groups.
func groupOf(state view.State) int {
	for i, group := range groups {
		if group.Name == lookOf(state).Group {
			return i
		}
	}
	return 0
}

// Progress is the progress of a server on its way, in words.
func (r rack) Progress(server view.Server) string { return r.machines[server.Machine].Progress }

// Change is what would become of a server, in words.
func (r rack) Change(server view.Server) string { return r.changes[server.Key().String()] }

// Counts are the counts of the groups that have servers, for a rack of dots.
func (r rack) Counts() (all []groupCount) {
	count := counts{}
	for i := range r.Servers {
		count[groupOf(r.Servers[i].State)]++
	}
	for i, group := range groups {
		if count[i] > 0 {
			all = append(all, groupCount{look{group.Name, group.Sign}, group.Words, count[i]})
		}
	}
	return all
}

type groupCount struct {
	Look  look
	Words string
	Count int32
}

// Height is the height of the map, in its own units.
func (r rack) Height() int { return (len(r.Servers) + mapWidth - 1) / mapWidth * 10 }

// Map draws a dot for each server. Each group has its own shape beside its colour.
func (r rack) Map() []area {
	forms := map[string]string{
		used: "h8v8h-8z", transit: "v8l8-4z", broken: "l8 8m0-8l-8 8", out: "m0 4h8", free: "h8v8h-8zm2 2v4h4v-4z",
	}
	paths := map[string]*strings.Builder{}
	for i := range r.Servers {
		group := lookOf(r.Servers[i].State).Group
		if paths[group] == nil {
			paths[group] = &strings.Builder{}
		}
		fmt.Fprintf(paths[group], "M%d %d%s", i%mapWidth*10+1, i/mapWidth*10+1, forms[group])
	}
	var all []area
	for _, group := range groups {
		if path := paths[group.Name]; path != nil {
			all = append(all, area{group.Name, path.String()})
		}
	}
	frames := ""
	for i := range r.Servers {
		if r.Change(r.Servers[i]) != "" {
			frames += fmt.Sprintf("M%d %dh10v10h-10z", i%mapWidth*10, i/mapWidth*10)
		}
	}
	if frames != "" {
		all = append(all, area{"changes", frames})
	}
	return all
}

// summary is the head of the page "fleet".
type summary struct {
	*drawing
	States []stateCount
	Shown  int
	// Types, Tenants, Racks and Zones are the values that a filter can choose from.
	Types, Tenants, Racks, Zones []string
}

func (d *drawing) fleet() error {
	shown := d.servers
	if d.Filter != (view.Filter{}) {
		shown = slices.DeleteFunc(slices.Clone(shown), func(server view.Server) bool { return !d.Filter.Has(server) })
	}
	head := summary{drawing: d, States: countStates(d.servers), Shown: len(shown)}
	types, tenants, racks, zones := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range d.servers {
		for _, name := range d.servers[i].Types {
			types[name] = true
		}
		tenants[d.servers[i].Tenant], racks[d.servers[i].Rack], zones[d.servers[i].Zone] = true, true, true
	}
	sorted := func(set map[string]bool) []string {
		delete(set, "")
		return slices.SortedFunc(maps.Keys(set), view.CompareNames)
	}
	head.Types, head.Tenants, head.Racks, head.Zones = sorted(types), sorted(tenants), sorted(racks), sorted(zones)
	if err := cmp.Or(d.add("top", "summary", head), d.add("top", "filter", head), d.add("top", "shown", head)); err != nil {
		return err
	}
	if err := d.racks(shown, d.machines, nil); err != nil || d.Frozen {
		return err
	}
	return d.add("rest", "moves", d)
}

// racks draws servers rack by rack, within the domains that contain the racks.
func (d *drawing) racks(shown []view.Server, machines map[string]view.Machine, changes map[string]string) error {
	large, dots := len(shown) <= maxLarge, len(shown) > maxTiles
	shown = d.domains.sort(shown)
	for len(shown) > 0 {
		path := d.domains.path(shown[0])
		same := func(server view.Server) bool {
			return rackKey(server) == rackKey(shown[0]) && slices.Equal(d.domains.path(server), path)
		}
		end := slices.IndexFunc(shown, func(server view.Server) bool { return !same(server) })
		if end < 0 {
			end = len(shown)
		}
		drawn := rack{rendered: d.rendered, Path: strings.Join(append(path, rackKey(shown[0])), "/"), Zone: shown[0].Zone,
			Rack: shown[0].Rack, Inside: d.domains.written(shown[:end]), Servers: shown[:end], States: countStates(shown[:end]),
			Large: large, Dots: dots, machines: machines, changes: changes}
		place, err := d.outline(d.domains.levels, path)
		if err != nil {
			return err
		}
		if err := d.add(place, "rack", drawn, drawn.Path); err != nil {
			return err
		}
		shown = shown[end:]
	}
	return nil
}

// Moves are the changes of servers' states, the newest first.
func (d *drawing) Moves() []move { return d.moves }

// HasTenant reports whether a tenant cluster was read.
func (d *drawing) HasTenant() bool { return d.version.fleet.HasTenant() }

// Total is how many servers there are.
func (d *drawing) Total() int { return len(d.servers) }

// Waiting is how many objects wait.
func (d *drawing) Waiting() int { return d.waiting }

// Problems is how many issues are more than information.
func (d *drawing) Problems() (count int) {
	for i := range d.version.issues {
		if d.version.issues[i].Severity != view.Info {
			count++
		}
	}
	return count
}

// bar is a line of numbers that is also drawn as a bar.
type bar struct {
	Parts []barPart
	Total int32
}

// barPart begins at X and is Width wide, of 100.
type barPart struct {
	Group    string
	X, Width string
	Words    string
}

func barOf(counted counts) bar {
	drawn := bar{Total: counted.total()}
	offset := 0.0
	for i, group := range groups {
		if counted[i] == 0 {
			continue
		}
		width := 100 * float64(counted[i]) / float64(drawn.Total)
		drawn.Parts = append(drawn.Parts, barPart{group.Name, fmt.Sprintf("%.2f", offset), fmt.Sprintf("%.2f", width),
			fmt.Sprintf("%d %s", counted[i], group.Words)})
		offset += width
	}
	return drawn
}

// capacityRow is a NodeType, with its servers by group.
type capacityRow struct {
	view.TypeCapacity
	Counts counts
	Bar    bar
	Usual  string
}

// Has lists how many servers each tenant has of the type.
func (c capacityRow) Has() []string { return view.Counted(c.Tenants) }

type tenantRow struct {
	view.TenantCapacity
	Has   []string
	Links []leading
}

func (d *drawing) capacity() error {
	now := d.history.samples[len(d.history.samples)-1]
	var rows []capacityRow
	plots := []plot{d.history.plot("all servers", func(sample sample) counts { return sample.all })}
	for _, capacity := range d.version.fleet.Capacity() {
		row := capacityRow{TypeCapacity: capacity, Counts: now.byType[capacity.NodeType], Bar: barOf(now.byType[capacity.NodeType])}
		if capacity.TypicalSeconds > 0 {
			row.Usual = duration.HumanDuration(time.Duration(capacity.TypicalSeconds) * time.Second)
		}
		rows = append(rows, row)
		past := d.historyOf(capacity.NodeType)
		plots = append(plots, past.plot(capacity.NodeType, func(sample sample) counts { return sample.byType[capacity.NodeType] }))
	}
	var tenants []tenantRow
	for _, tenant := range d.version.fleet.Tenants() {
		var object linked
		object.tenantNamespace, object.tenant, _ = strings.Cut(tenant.Tenant, "/")
		tenants = append(tenants, tenantRow{TenantCapacity: tenant, Has: tenant.ByType(), Links: d.leadings(object)})
	}
	return cmp.Or(d.add("main", "types", map[string]any{"Groups": groups, "Rows": rows, "All": now.all, "Bar": barOf(now.all)}),
		d.add("main", "tenants", tenants), d.add("main", "plots", map[string]any{"Groups": groups, "Plots": plots, "Frozen": d.Frozen,
			"Recorded": d.recorded}))
}

// waitingGroup is the objects that wait for the same reason.
type waitingGroup struct {
	view.Waiters
	// Like is how many objects are like the first; Others are some of them, and More is how many are not in Others.
	Like   int
	Others []string
	More   int
	// In is how far away Until is, in the past if Late is set.
	In   string
	Late bool
}

func (d *drawing) pending() error {
	all, left := d.version.fleet.Waiting(maxWaiting)
	words := map[string]string{"pod": "Pods", "nodeclaim": "NodeClaims", "machine": "Machines"}
	for _, kind := range []string{"pod", "nodeclaim", "machine"} {
		var groups []waitingGroup
		for _, waiters := range all {
			if waiters.Kind != kind {
				continue
			}
			group := waitingGroup{Waiters: waiters, Like: len(waiters.Names) - 1, Others: waiters.Names[1:min(len(waiters.Names), 1+maxNames)],
				More: max(0, len(waiters.Names)-1-maxNames)}
			if waiters.Until != nil {
				group.Late, group.In = waiters.Until.Time.Before(d.Now), duration.HumanDuration(waiters.Until.Sub(d.Now).Abs())
			}
			groups = append(groups, group)
		}
		err := d.add("main", "waiting", map[string]any{"Page": d, "Kind": kind, "Words": words[kind], "Groups": groups}, kind)
		if err != nil {
			return err
		}
	}
	return d.add("rest", "left", left)
}

func (d *drawing) issues() error {
	all := d.version.issues
	return d.add("main", "problems", map[string]any{"Issues": all[:min(len(all), maxIssues)], "More": max(0, len(all)-maxIssues)})
}

// step is a step of a timeline. Its bar compares its time with the longest step.
type step struct {
	view.Step
	Took, Usual      string
	Width, UsualMark string
	// Running: the server is on the way to a node, or back.
	Running bool
}

// pastUses returns the last ended uses of a server, the newest first.
func pastUses(all []view.Use) (ended []view.Use) {
	for _, use := range slices.Backward(all) {
		if use.End != nil && len(ended) < maxUses {
			ended = append(ended, use)
		}
	}
	return ended
}

func (d *drawing) server() error {
	fleet := d.version.fleet
	host, err := fleet.Host(d.Name)
	index := slices.IndexFunc(d.servers, func(server view.Server) bool { return server.Key().String() == d.Name })
	if err != nil || index < 0 {
		d.Title, d.Gone = d.Name, true
		return d.add("main", "gone", d.Name)
	}
	server := d.servers[index]
	d.Title = server.Name
	cause, err := fleet.Explain("host", d.Name)
	if err != nil {
		return err
	}
	taken, err := fleet.Timeline("host", d.Name)
	if err != nil {
		return err
	}
	var longest time.Duration
	for _, step := range taken {
		if step.Name != view.StepNode {
			longest = max(longest, step.Duration(d.Now), time.Duration(step.TypicalSeconds)*time.Second)
		}
	}
	var steps []step
	for _, recorded := range taken {
		share := func(elapsed time.Duration) string {
			return fmt.Sprintf("%.2f", 99*min(1, elapsed.Seconds()/max(longest.Seconds(), 1)))
		}
		drawn := step{Step: recorded, Took: duration.HumanDuration(recorded.Duration(d.Now)), Width: share(recorded.Duration(d.Now)),
			Running: recorded.End == nil && recorded.Name != view.StepNode}
		if recorded.TypicalSeconds > 0 {
			usual := time.Duration(recorded.TypicalSeconds) * time.Second
			drawn.Usual, drawn.UsualMark = duration.HumanDuration(usual), share(usual)
		}
		steps = append(steps, drawn)
	}
	return cmp.Or(
		d.add("main", "facts", map[string]any{"Page": d, "Server": server, "Machine": d.machines[server.Machine], "Host": host,
			"Links": d.leadings(linkedOf(server))}),
		d.add("main", "why", cause), d.add("main", "timeline", map[string]any{"Steps": steps, "Now": d.Now}),
		d.add("main", "hardware", fleet.Hardware(host)), d.add("main", "past", map[string]any{"Page": d, "Server": server,
			"Uses":  pastUses(d.past.Uses),
			"Wrong": d.past.Wrong}),
	)
}
