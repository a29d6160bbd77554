// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

func TestDomains(t *testing.T) {
	// Each word is a server: its rack, spine and NVLink domain.
	for name, tc := range map[string]struct {
		reason, servers string
		want            domains
	}{
		"Outlined": {"a spine has several racks", "r1,s1,- r2,s1,- r3,s2,-", domains{levels: []string{"spine"}}},
		"Nested": {"what has fewer domains is around the other", "r1,s1,n1 r2,s1,n1 r3,s1,n2 r4,s2,n3",
			domains{levels: []string{"spine", "nvlink"}}},
		"OfARack": {"an outline around each rack says no more than its name in it", "r1,s1,n1 r2,s1,n2 r3,s2,n3",
			domains{levels: []string{"spine"}, inside: []string{"nvlink"}}},
		"Divided":   {"a rack cannot be in two outlines", "r1,-,n1 r1,-,n2 r2,-,n2", domains{inside: []string{"nvlink"}}},
		"Same":      {"all are in it", "r1,s1,- r2,s1,-", domains{}},
		"Some":      {"what is in none is out of the outline", "r1,s1,- r2,s1,- r3,-,-", domains{levels: []string{"spine"}}},
		"NoRack":    {"servers without a rack do not divide one", "-,s1,- -,s2,- r1,s1,- r2,s1,-", domains{levels: []string{"spine"}}},
		"NoServers": {"an empty fleet", "", domains{}},
	} {
		t.Run(name, func(t *testing.T) {
			var servers []view.Server
			for word := range strings.FieldsSeq(tc.servers) {
				values := strings.Split(strings.ReplaceAll(word, "-", ""), ",")
				servers = append(servers, view.Server{Rack: values[0], Metadata: view.Metadata{
					Labels: map[string]string{"rack": values[0], "spine": values[1], "nvlink": values[2]}}})
			}
			if diff := cmp.Diff(tc.want, domainsOf(servers, []string{"nvlink", "rack", "spine"}), cmp.AllowUnexported(domains{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOutlines: racks are in the section of their domain, in the order of their numbers, on the page and in what is told of it.
func TestOutlines(t *testing.T) {
	snapshot := fleettest.New(240)
	for i := range snapshot.Management.Hosts {
		labels := snapshot.Management.Hosts[i].Labels
		labels["rack"], labels["nvlink-domain"] = fmt.Sprint("rack-", i/20+1), fmt.Sprint("n", i/10+1)
	}
	mapping, err := topology.Parse([]string{"rack", "nvlink-domain", "spine"})
	if err != nil {
		t.Fatal(err)
	}
	screen := New(view.Still(snapshot), Options{Token: token, Still: true, Topology: mapping})
	page := get(t, screen, "/token/", nil).Body.String()
	found := regexp.MustCompile(`<section data-part="(?:domain|rack)-([^"]*)"|</section>`).FindAllStringSubmatch(page, -1)
	var drawn []string
	for _, section := range found {
		drawn = append(drawn, section[1])
	}
	// The two halls, each with spines of four racks. The end of a section is an empty word.
	want := "hall-a hall-a/a1 hall-a/a1/hall-a/rack-1  hall-a/a1/hall-a/rack-3  hall-a/a1/hall-a/rack-5  hall-a/a1/hall-a/rack-7   " +
		"hall-a/a2 hall-a/a2/hall-a/rack-9  hall-a/a2/hall-a/rack-11    " +
		"hall-b hall-b/b1 hall-b/b1/hall-b/rack-2  hall-b/b1/hall-b/rack-4  hall-b/b1/hall-b/rack-6  hall-b/b1/hall-b/rack-8   " +
		"hall-b/b2 hall-b/b2/hall-b/rack-10  hall-b/b2/hall-b/rack-12   "
	if diff := cmp.Diff(want, strings.TrimLeft(strings.Join(drawn, " "), " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{`aria-label="spine a1"`, `aria-label="datacenter hall-a"`, "nvlink-domain n1, n2</p>"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	if few := get(t, screen, "/token/?rack=rack-1", nil).Body.String(); !strings.Contains(few, `unit </span>U39</span>`) {
		t.Errorf("the page does not say where in the rack a server is: %s", few)
	}
	shown, err := screen.render(screen.present(), pageAt(t, "/"))
	if err != nil {
		t.Fatal(err)
	}
	told := shown.since(map[string]uint64{})
	if diff := cmp.Diff([]string{"rack-hall-a/a2/hall-a/rack-9", "rack-hall-a/a2/hall-a/rack-11"}, told.Slots["main/hall-a/a2"]); diff != "" {
		t.Errorf("what is told of a spine (-want +got):\n%s", diff)
	}
	if text := told.Parts["domain-hall-a/a2"]; !strings.HasSuffix(text, `class="main"></div></section>`) {
		t.Errorf("a domain is told with what is in it: %s", text)
	}
}

func pageAt(t *testing.T, rest string) page {
	t.Helper()
	asked, known := pageOf(rest, nil)
	if !known {
		t.Fatalf("%s is no page", rest)
	}
	return asked
}
