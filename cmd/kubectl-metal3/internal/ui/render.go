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

// serverPath returns the path of a server's page, below the base. Namespaces and names need no escapes.
func serverPath(server view.Server) string { return "/server/" + server.Key().String() }

// part is a piece of a page that is sent again when it has changed.
type part struct {
	// Name is the value of the element's attribute data-part.
	Name string
	HTML template.HTML
	sum  uint64
	// Inside is the slot at the end of this part, nil if it has none.
	Inside *slot
}

// closing ends the HTML of a part that contains a slot.
const closing = "</div></section>"

// Opening is the HTML of a part before the content of its slot.
func (p part) Opening() template.HTML {
	return template.HTML(strings.TrimSuffix(string(p.HTML), closing))
}

// Closing is the HTML of a part after the content of its slot.
func (part) Closing() template.HTML { return closing }

type slot struct {
	Name  string
	Parts []part
}

type rendered struct {
	Base, Title string
	page
	Now    time.Time
	Frozen bool
	// Slots are nav, top, main and rest, and then the slots inside parts.
	Slots []*slot
	// Sum changes with every change of the page.
	Sum string
	// Gone: no server has this name.
	Gone bool
}

// views has each view by name, with the function that fills its slots.
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
	// Answer is the answer of What if.
	Answer *answer
	// past is who had the server.
	past past
	// recorded is the last answer of Prometheus; nil without Prometheus.
	recorded *recorded
}

// render returns a page of a version. It renders the page once for all viewers.
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

// draw renders a page of a version. The caller holds the version's lock. An answer of What if belongs to one version,
// so its page is frozen.
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

// ages matches texts that the browser updates by itself. A part with only a new age has not changed.
var ages = regexp.MustCompile(`(<time data-age[^>]*>)[^<]*`)

// add renders a template into a slot. The part has the name of the template, followed by the given names.
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

func (d *drawing) slot(name string) *slot {
	if index := slices.IndexFunc(d.Slots, func(known *slot) bool { return known.Name == name }); index >= 0 {
		return d.Slots[index]
	}
	return nil
}

// since returns what a viewer lacks. The keys of sent are parts and slots, with the sums of what the viewer has. It
// updates sent to the sums of this page.
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

// Age is the time since a moment, as kubectl writes it.
func (r *rendered) Age(since *metav1.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(r.Now.Sub(since.Time))
}
