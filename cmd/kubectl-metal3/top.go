// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

func (o *options) topCommand() *cobra.Command {
	return &cobra.Command{
		Use: "top", Short: "Watch the servers, what is being installed, and the pods that have no node", Args: cobra.NoArgs,
		Long: "Shows each server with a bar: how far its installation is, or how many accelerators of its node pods ask for, if\n" +
			"--tenant-kubeconfig or --tenant-context lead to the cluster of its tenant. Below are the Machines on their way with the time at\n" +
			"which they are expected, and the pods that have no node. It follows the clusters until q is pressed; with --snapshot it stands " +
			"still.\n" +
			"It needs a terminal.",
		Example: "  kubectl metal3 top --tenant-kubeconfig acme.kubeconfig\n  kubectl metal3 top --snapshot fleet.json",
		RunE: func(command *cobra.Command, _ []string) error {
			if !isTerminal(o.In) || !isTerminal(o.Out) {
				return errors.New("top draws on a terminal, and its input or output is none: use kubectl metal3 fleet")
			}
			ctx, stop := context.WithCancel(command.Context())
			defer stop()
			live, err := o.follow(ctx)
			if err != nil {
				return err
			}
			screen := newTop(follow(ctx, live))
			terminal, _ := o.Out.(*os.File) // isTerminal has checked the type
			program := tea.NewProgram(screen, tea.WithInput(o.In), tea.WithOutput(unasked{terminal}))
			_, err = program.Run() // a signal ends it
			if errors.Is(err, tea.ErrInterrupted) {
				return nil // it was told to end
			}
			return err
		},
	}
}

// unasked is a terminal that bubbletea does not query for its features at the start. If an answer came after the end
// of the command, the terminal would type it into the shell.
type unasked struct{ *os.File }

func (u unasked) Write(text []byte) (int, error) {
	kept := bytes.ReplaceAll(text, []byte(ansi.RequestModeSynchronizedOutput), nil)
	if _, err := u.File.Write(bytes.ReplaceAll(kept, []byte(ansi.RequestModeUnicodeCore), nil)); err != nil {
		return 0, err
	}
	return len(text), nil
}

const (
	// drawnAtLeast is the shortest time between two fleets: each one is computed from all objects.
	drawnAtLeast = time.Second
	// drawnAtMost is the longest time between two fleets: the durations on the screen count up to the time of
	// reading.
	drawnAtMost = 5 * time.Second
)

// fleetNow is the current fleet, and the cluster that does not answer.
type fleetNow struct {
	*view.Fleet
	lost string
}

// follow returns the current fleet, and a command that waits for the next fleet.
func follow(ctx context.Context, live *view.Live) (fleetNow, tea.Cmd) {
	changed := live.Changed() // before the snapshot, so that no change is missed
	read := func() fleetNow { return fleetNow{view.New(live.Snapshot()), live.Lost()} }
	return read(), func() tea.Msg {
		old := time.After(drawnAtMost)
		select {
		case <-time.After(drawnAtLeast):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-changed:
		case <-old:
		case <-ctx.Done():
			return nil
		}
		changed = live.Changed()
		return read()
	}
}

// grouping is an order of the servers, with a heading for each group.
type grouping struct {
	name string
	key  func(view.Server) string
}

var groupings = []grouping{
	{"rack", func(server view.Server) string {
		if server.Rack == "" {
			return "zone " + server.Zone
		}
		return "zone " + server.Zone + ", rack " + server.Rack
	}},
	{"state", func(server view.Server) string { return string(server.State) }},
	{"type", typesOf},
	{"tenant", func(server view.Server) string { return cmp.Or(server.Tenant, "no tenant") }},
}

// top is the screen of "top" and its selection.
type top struct {
	fleet fleetNow
	// next waits for the next fleet.
	next tea.Cmd
	// servers and machines are the servers and Machines of the fleet; onTheWay is the Machines that wait or are
	// installed.
	servers  []view.Server
	machines map[string]view.Machine
	onTheWay []view.Machine
	waiting  []view.UnscheduledPod
	// name, kind and tenant are the widths of these columns.
	name, kind, tenant int

	grouping int
	filter   string
	// typing: keys go to the filter.
	typing bool
	lines  []line
	// current is the name of the selected server.
	current string
	// selected and first are indexes of lines; first is the line at the top of the screen.
	selected, first int
	width, height   int
	// head and foot are the lines above and below the list.
	head, foot []string
	detail     *detail
}

// line is a line of the list: a server, or the heading of a group of servers.
type line struct {
	heading string
	server  int
}

// detail is the view of one server, which covers the list.
type detail struct {
	server   string
	timeline bool
	lines    []string
	first    int
}

func newTop(fleet fleetNow, next tea.Cmd) *top {
	t := &top{next: next}
	t.show(fleet)
	return t
}

func (t *top) show(fleet fleetNow) {
	t.fleet, t.servers, t.waiting = fleet, fleet.Servers(), fleet.Unscheduled()
	t.machines, t.onTheWay, t.name, t.kind, t.tenant = map[string]view.Machine{}, nil, 0, 0, 0
	for _, machine := range fleet.Machines() {
		t.machines[machine.Namespace+"/"+machine.Name] = machine
		if machine.Progress != "" || machine.Server == "" {
			t.onTheWay = append(t.onTheWay, machine)
		}
	}
	slices.SortStableFunc(t.onTheWay, func(a, b view.Machine) int {
		switch {
		case a.Expected != nil && b.Expected != nil:
			return a.Expected.Compare(b.Expected.Time)
		case a.Expected != nil:
			return -1
		case b.Expected != nil:
			return 1
		}
		return 0
	})
	for _, server := range t.servers {
		t.name, t.kind = max(t.name, len(server.Name)), max(t.kind, len(typesOf(server)))
		t.tenant = max(t.tenant, len(server.Tenant))
	}
	t.list()
	t.open()
}

func (t *top) list() {
	words := strings.Fields(strings.ToLower(t.filter))
	groupKey := groupings[t.grouping].key
	var found []int
	count := map[string]int{}
	for i, server := range t.servers {
		text := strings.ToLower(strings.Join([]string{server.Key().String(), server.Zone, server.Rack, typesOf(server), string(server.State),
			server.Tenant, server.Machine, server.Node, server.Why}, " "))
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
			found = append(found, i)
			count[groupKey(server)]++
		}
	}
	if t.grouping > 0 { // servers come sorted by rack
		slices.SortStableFunc(found, func(a, b int) int { return strings.Compare(groupKey(t.servers[a]), groupKey(t.servers[b])) })
	}
	t.head, t.foot = t.header(), t.below()
	t.lines = nil
	last := ""
	for _, i := range found {
		if heading := fmt.Sprintf("%s (%d)", groupKey(t.servers[i]), count[groupKey(t.servers[i])]); heading != last {
			t.lines, last = append(t.lines, line{heading: heading}), heading
		}
		if t.servers[i].Key().String() == t.current {
			t.selected = len(t.lines)
		}
		t.lines = append(t.lines, line{server: i})
	}
	t.move(0)
}

// move moves the selection by delta lines and scrolls to it.
func (t *top) move(delta int) {
	if len(t.lines) == 0 {
		t.selected, t.first = 0, 0
		return
	}
	t.selected = max(0, min(t.selected+delta, len(t.lines)-1))
	if t.lines[t.selected].heading != "" { // the line below is a server
		if t.selected--; delta >= 0 || t.selected < 0 {
			t.selected += 2
		}
	}
	t.current = t.servers[t.lines[t.selected].server].Key().String()
	t.first = max(0, min(t.first, t.selected-1, len(t.lines)-t.rows()), t.selected-t.rows()+1)
}

func typesOf(server view.Server) string { return cmp.Or(strings.Join(server.Types, ","), "no type") }

// Init waits for the next fleet.
func (t *top) Init() tea.Cmd { return t.next }

// Update handles a key, a new window size or the next fleet.
func (t *top) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = message.Width, message.Height
		t.list()
		t.open()
	case fleetNow:
		t.show(message)
		return t, t.next
	case tea.KeyPressMsg:
		switch {
		case message.String() == "ctrl+c":
			return t, tea.Quit
		case t.typing:
			t.typeFilter(message)
		case message.String() == "q":
			return t, tea.Quit
		case t.detail != nil:
			t.pressInDetail(message.String())
		default:
			t.press(message.String())
		}
	}
	return t, nil
}

// steps returns by how many lines a key moves, if it moves up or down. A page has the given number of lines.
func steps(key string, page int) (delta int, moves bool) {
	delta, moves = map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page, "home": -1 << 30, "g": -1 << 30,
		"end": 1 << 30, "G": 1 << 30}[key]
	return delta, moves
}

func (t *top) press(key string) {
	if delta, moves := steps(key, t.rows()); moves {
		t.move(delta)
		return
	}
	switch key {
	case "enter", "t":
		if len(t.lines) > 0 {
			t.detail = &detail{server: t.current, timeline: key == "t"}
			t.open()
		}
	case "s":
		t.grouping = (t.grouping + 1) % len(groupings)
		t.list()
	case "/":
		t.typing = true
	case "esc":
		t.filter = ""
		t.list()
	}
}

func (t *top) typeFilter(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		t.typing = false
	case "esc":
		t.typing, t.filter = false, ""
	case "backspace":
		if runes := []rune(t.filter); len(runes) > 0 {
			t.filter = string(runes[:len(runes)-1])
		}
	default:
		t.filter += key.Text
	}
	t.selected = 0 // unless the selected server is still listed
	t.list()
}

func (t *top) pressInDetail(key string) {
	if delta, moves := steps(key, t.detailRows()); moves {
		t.detail.first += delta
	}
	switch key {
	case "esc", "enter":
		t.detail = nil
		return
	case "t":
		t.detail = &detail{server: t.detail.server, timeline: !t.detail.timeline}
	}
	t.open()
}

// open renders the detail of a server at the width of the screen.
func (t *top) open() {
	if t.detail == nil || t.width == 0 {
		return
	}
	var text bytes.Buffer
	if t.detail.timeline {
		steps, err := t.fleet.Timeline("host", t.detail.server)
		if err == nil {
			list := timelineOf(steps, t.fleet.Now())
			err = printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(fit(list.table(nil), false, t.width), &text)
		}
		if err != nil {
			fmt.Fprintln(&text, err)
		}
	} else if cause, err := t.fleet.Explain("host", t.detail.server); err != nil {
		fmt.Fprintln(&text, err)
	} else {
		draw(&text, cause, "", "", true)
	}
	wrapped := ansi.Wrap(strings.TrimSuffix(text.String(), "\n"), t.width, "")
	t.detail.lines = strings.Split(wrapped, "\n")
	t.detail.first = max(0, min(t.detail.first, len(t.detail.lines)-t.detailRows()))
}

// detailRows returns how many lines of the detail fit on the screen.
func (t *top) detailRows() int { return max(1, t.height-2) }

// rows returns how many lines of the list fit on the screen.
func (t *top) rows() int { return max(1, t.height-len(t.head)-len(t.foot)-1) }

// View draws only the lines that fit on the screen.
func (t *top) View() tea.View {
	screen := tea.View{AltScreen: true}
	if t.width == 0 { // the size is not known yet
		return screen
	}
	var lines, foot []string
	keys := "up/down select  enter explain  t timeline  s by " + groupings[(t.grouping+1)%len(groupings)].name + "  / filter  q quit"
	if t.detail != nil {
		lines = append(lines, paint(bold, "server "+t.detail.server))
		lines = append(lines, t.detail.lines[t.detail.first:min(t.detail.first+t.detailRows(), len(t.detail.lines))]...)
		keys = "up/down scroll  t timeline  esc back  q quit"
		if t.detail.timeline {
			keys = "up/down scroll  t explain  esc back  q quit"
		}
	} else {
		lines, foot = append(lines, t.head...), t.foot
		for i := t.first; i < min(t.first+t.rows(), len(t.lines)); i++ {
			lines = append(lines, t.draw(t.lines[i], i == t.selected))
		}
	}
	if t.typing {
		keys = "filter: " + t.filter + "_  enter keeps it  esc removes it"
	}
	for len(lines) < t.height-len(foot)-1 {
		lines = append(lines, "")
	}
	lines = append(append(lines, foot...), paint(dim, keys))
	lines = lines[:min(len(lines), t.height)]
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], t.width, "…")
	}
	screen.Content = strings.Join(lines, "\n")
	return screen
}

func (t *top) header() []string {
	states := map[view.State]int{}
	for _, server := range t.servers {
		states[server.State]++
	}
	lines := strings.Split(ansi.Wrap(fmt.Sprintf("%s at %s: %s", paint(bold, count(len(t.servers), "server")),
		t.fleet.Now().UTC().Format(time.RFC3339), countsOf(states)), t.width, ""), "\n")
	if t.filter != "" {
		lines = append(lines, "filter: "+t.filter)
	}
	if t.fleet.lost != "" {
		lines = append(lines, paint(signs[view.Wrong].colour, "this is old: "+view.Plain(t.fleet.lost)))
	}
	for _, missing := range t.fleet.Missing() {
		lines = append(lines, paint(signs[view.Waiting].colour, "warning: "+missing.String()))
	}
	return lines
}

const barWidth = 10

func (t *top) draw(line line, selected bool) string {
	if line.heading != "" {
		return paint(bold, line.heading)
	}
	server := t.servers[line.server]
	sign := signs[t.fleet.Verdict(server)]
	bar, text := strings.Repeat(" ", barWidth), server.Why
	if gauge, has := t.fleet.Gauge(server); has {
		done := int(min(gauge.Value, gauge.Full) * barWidth / gauge.Full)
		bar = strings.Repeat("█", done) + strings.Repeat("░", barWidth-done)
		text = fmt.Sprintf("%d/%d %s", gauge.Value, gauge.Full, gauge.Of)
		if expected := t.expected(t.machines[server.Machine]); expected != "" {
			text += ", " + expected
		} else if server.Node != "" {
			text += ", node " + server.Node
		}
	}
	text = fmt.Sprintf("%s %-*s %-*s %-12s %s %-*s %s", sign.sign, t.name, server.Name, t.kind, typesOf(server), server.State, bar, t.tenant,
		server.Tenant, view.Plain(text))
	if selected {
		return paint(reverse, "> "+text)
	}
	return paint(sign.colour, "  "+text)
}

// expected says when a Machine is expected to have joined; empty if unknown.
func (t *top) expected(machine view.Machine) string {
	switch expected := expectedOf(machine, t.fleet.Now()); {
	case machine.Expected == nil:
		return ""
	case machine.Expected.Time.Before(t.fleet.Now()):
		return "longer than usual: expected " + expected
	default:
		return "expected " + expected
	}
}

// below returns the Machines on their way and the pods without a node, as many as fit.
func (t *top) below() []string {
	var lines []string
	most := (t.height - 8) / 4
	section := func(title string, count int, entry func(int) string) {
		if count == 0 || most < 1 {
			return
		}
		lines = append(lines, paint(bold, fmt.Sprintf("%s (%d)", title, count)))
		shown := count
		if count > most {
			shown = most - 1
		}
		for i := range shown {
			lines = append(lines, entry(i))
		}
		if shown < count {
			lines = append(lines, fmt.Sprintf("  and %d more", count-shown))
		}
	}
	section("on the way", len(t.onTheWay), func(i int) string {
		machine, sign := t.onTheWay[i], signs[view.Waiting]
		text := strings.Trim(machine.Progress+", "+t.expected(machine), ", ")
		if machine.Server == "" {
			sign, text = signs[view.Wrong], machine.Message
		}
		return paint(sign.colour, fmt.Sprintf("  %s %s/%s  %s  %s", sign.sign, machine.Namespace, machine.Name,
			cmp.Or(machine.Server, "no server"), view.Plain(text)))
	})
	section("pods without a node", len(t.waiting), func(i int) string {
		pod := t.waiting[i]
		cause := waits(pod)
		sign := signs[cause.Verdict]
		asks := v1alpha1.HardwareProfile{Resources: resources.RequestsForPods(pod.Pod)}
		return paint(sign.colour, fmt.Sprintf("  %s %s/%s  %s  %s  %s", sign.sign, pod.Namespace, pod.Name,
			cmp.Or(age(t.fleet.Now(), &pod.CreationTimestamp), "-"), cmp.Or(capacity.Accelerators(&asks), "no accelerator"), view.Plain(cause.Text)))
	})
	return lines
}

// waits returns the first cause that explains why a pod has no node, for one line.
func waits(pod view.UnscheduledPod) view.Cause {
	cause := pod.Explain()
	for _, inner := range cause.Causes {
		if inner.Verdict == cause.Verdict {
			return inner
		}
	}
	return cause
}
