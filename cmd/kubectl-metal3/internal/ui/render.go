// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"embed"
	"fmt"
	"hash/maphash"
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"look": lookOf, "verdict": func(verdict view.Verdict) any { return verdicts[verdict] }, "path": serverPath,
	"clock": func(moment time.Time) string { return moment.UTC().Format("2006-01-02 15:04:05 UTC") },
	"unix":  func(moment time.Time) int64 { return moment.Unix() },
	"short": func(name string) string { return name[strings.LastIndexByte(name, '/')+1:] },
	"for":   func(from, to time.Time) string { return duration.HumanDuration(to.Sub(from)) },
	"join":  strings.Join,
}).ParseFS(templateFiles, "templates/*.html"))

// serverPath is the path of the page of a server, below the base. Namespaces and names have nothing to escape.
func serverPath(server view.Server) string { return "/server/" + server.Key().String() }

// part is a piece of a page that is sent again when it has changed.
type part struct {
	// Name is that of the element with the attribute data-part.
	Name string
	HTML template.HTML
	sum  uint64
	// Inside is a slot in this part, nil if it has none: the last element in it.
	Inside *slot
}

// closing ends the HTML of a part with a slot inside.
const closing = "</div></section>"

// Opening is the HTML of a part up to what is in its slot.
func (p part) Opening() template.HTML {
	return template.HTML(strings.TrimSuffix(string(p.HTML), closing))
}

// Closing is the rest of it.
func (part) Closing() template.HTML { return closing }

// slot is a place on a page for parts.
type slot struct {
	Name  string
	Parts []part
}

// rendered is a page.
type rendered struct {
	Base, Title string
	page
	Now    time.Time
	Frozen bool
	// Slots are nav, top, main and rest, and then those inside of parts.
	Slots []*slot
	// Sum is different if anything is.
	Sum string
	// Gone is true if there is no such server.
	Gone bool
}

// views by name, with what fills their slots.
var views = map[string]struct {
	title  string
	render func(*drawing) error
}{
	"fleet": {"Fleet", (*drawing).fleet}, "capacity": {"Capacity", (*drawing).capacity}, "pending": {"Pending", (*drawing).pending},
	"issues": {"Issues", (*drawing).issues}, "server": {"Server", (*drawing).server}, "whatif": {"What if", (*drawing).whatIf},
}

// drawing is a page while it is rendered.
type drawing struct {
	*version
	*rendered
	// Answer is that of What if.
	Answer *answer
	// past is who had the server.
	past past
	// recorded is what Prometheus has said; nil if there is none.
	recorded *recorded
}

// render returns a page of a version, which is made once for all viewers.
func (s *Screen) render(v *version, asked page) (*rendered, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if done := v.pages[asked]; done != nil {
		return done, nil
	}
	done, err := s.draw(v, asked, nil)
	if err != nil {
		return nil, err
	}
	if len(v.pages) >= maxPages {
		for page := range v.pages {
			delete(v.pages, page)
			break
		}
	}
	v.pages[asked] = done
	return done, nil
}

// draw makes a page of a version, whose lock is held. The answer is that of What if, which is of one time.
func (s *Screen) draw(v *version, asked page, answered *answer) (*rendered, error) {
	d := &drawing{version: v, rendered: &rendered{Base: s.base, Title: views[asked.View].title, page: asked, Now: v.fleet.Now(),
		Frozen: s.still || answered != nil,
		Slots:  []*slot{{Name: "nav"}, {Name: "top"}, {Name: "main"}, {Name: "rest"}}}, Answer: answered}
	if asked.View == "server" {
		d.past = s.pastOf(v.fleet, asked.Name)
	}
	if s.prometheus != nil {
		d.recorded = new(s.lastRecorded())
	}
	if err := d.add("nav", "nav", d); err != nil {
		return nil, err
	}
	missing := []string{}
	if v.lost != "" {
		missing = append(missing, v.lost+". What is shown is what was there before")
	}
	for _, absent := range v.fleet.Missing() {
		missing = append(missing, absent.String())
	}
	if len(missing) > 0 {
		if err := d.add("top", "missing", missing); err != nil {
			return nil, err
		}
	}
	if err := views[asked.View].render(d); err != nil {
		return nil, err
	}
	var whole maphash.Hash
	whole.SetSeed(seed)
	for _, slot := range d.Slots {
		for i := range slot.Parts {
			whole.WriteString(slot.Parts[i].Name + "\n")
			maphash.WriteComparable(&whole, slot.Parts[i].sum)
		}
	}
	d.Sum = strconv.FormatUint(whole.Sum64(), 36)
	return d.rendered, nil
}

var seed = maphash.MakeSeed()

// ages are texts that become old by themselves: the browser renews them, and they do not make a part another.
var ages = regexp.MustCompile(`(<time data-age[^>]*>)[^<]*`)

// add renders a template into a slot. The name of the part is that of the template, if no other is given.
func (d *drawing) add(place, name string, data any, names ...string) error {
	var content bytes.Buffer
	if err := templates.ExecuteTemplate(&content, name, data); err != nil {
		return fmt.Errorf("rendering %s, %w", name, err)
	}
	drawn := part{Name: strings.Join(append([]string{name}, names...), "-"), HTML: template.HTML(content.String())}
	drawn.sum = maphash.Bytes(seed, ages.ReplaceAll(content.Bytes(), []byte("$1")))
	filled := d.slot(place)
	filled.Parts = append(filled.Parts, drawn)
	return nil
}

// slot returns the one of that name, nil if there is none.
func (d *drawing) slot(name string) *slot {
	if index := slices.IndexFunc(d.Slots, func(known *slot) bool { return known.Name == name }); index >= 0 {
		return d.Slots[index]
	}
	return nil
}

// since is what a viewer has not got that was sent parts and orders of these sums. They are then those of this page.
func (r *rendered) since(sent map[string]uint64) event {
	told := event{Slots: map[string][]string{}, Parts: map[string]string{}}
	kept := map[string]bool{}
	for _, slot := range r.Slots {
		var order maphash.Hash
		order.SetSeed(seed)
		names := []string{}
		for i := range slot.Parts {
			name := slot.Parts[i].Name
			names = append(names, name)
			order.WriteString(name + "\n")
			kept[name] = true
			if before, has := sent[name]; !has || before != slot.Parts[i].sum {
				told.Parts[name], sent[name] = string(slot.Parts[i].HTML), slot.Parts[i].sum
			}
		}
		key := "slot " + slot.Name
		kept[key] = true
		if before, has := sent[key]; !has || before != order.Sum64() {
			told.Slots[slot.Name], sent[key] = names, order.Sum64()
		}
	}
	for name := range sent {
		if !kept[name] {
			delete(sent, name)
		}
	}
	return told
}

// Age is how long ago something was, as kubectl writes it.
func (r *rendered) Age(since *metav1.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(r.Now.Sub(since.Time))
}
