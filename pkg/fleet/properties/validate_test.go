// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestValidate(t *testing.T) {
	layer := func(source string, pairs ...string) Layer {
		values := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			values[pairs[i]] = pairs[i+1]
		}
		return Layer{Source: source, Values: values}
	}
	cases := map[string]struct {
		reason string
		layers []Layer
		want   []string
	}{
		"Nothing": {reason: "nothing is wrong with nothing: something more general may have the image"},
		"Custom": {reason: "unknown keys are for selecting",
			layers: []Layer{layer("Machine a/m", "rack", "r1", "example.com/any", "what ever")}},
		"Everything": {
			reason: "all faults at once, in the order of their keys",
			layers: []Layer{layer("Machine a/m",
				v1alpha1.PropertyOSImage, "A b", v1alpha1.PropertyServerName, "_", v1alpha1.PropertySSHKeys, "me,You",
				v1alpha1.PropertyUserDataTemplate, "*",
				v1alpha1.PropertyNetworkDataTemplate, "a_b", v1alpha1.PropertyImageURL, "file:///etc/passwd", v1alpha1.PropertyImageChecksum, "abc",
				v1alpha1.PropertyNetworkCIDR, "10.0.0.0/24", v1alpha1.PropertyDNSServers, "dns")},
			want: []string{"dns-servers", "image-checksum", "image-url", "network-cidr", "network-data-template", "os-image", "server-name",
				"ssh-keys", "user-data-template"},
		},
		"Overridden": {
			reason: "a wrong value that a more specific object overrides does no harm",
			layers: []Layer{layer("NodeType t", v1alpha1.PropertyNetworkCIDR, "x"),
				layer("Machine a/m", v1alpha1.PropertyNetworkCIDR, "10.0.0.1/24")},
		},
		"Pinned": {reason: "a pin is for one Machine", layers: []Layer{layer("Machine a/m", v1alpha1.PropertyServerName, "server-1")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range Merge(tc.layers...).Validate() {
				key := keyOf(err)
				got = append(got, key[strings.LastIndex(key, "/")+1:])
				if text := err.Error(); !strings.Contains(text, key) || !strings.Contains(text, " of "+tc.layers[len(tc.layers)-1].Source+" (") ||
					!strings.Contains(text, ": ") {
					t.Errorf("%s: it does not name object, field, value and remedy: %s", tc.reason, text)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Lists are compared each with each, so a long one would take minutes.
func TestLongLists(t *testing.T) {
	var text strings.Builder
	for n := range 60000 {
		fmt.Fprintf(&text, "10.%d.%d.%d,", n>>16, n>>8&255, n&255)
	}
	long := strings.TrimSuffix(text.String(), ",")
	var got []string
	for _, err := range Merge(Layer{"Machine a/m",
		map[string]string{v1alpha1.PropertyNetworkCIDR: "10.255.0.1/8", v1alpha1.PropertyNetworkIPRange: long,
			v1alpha1.PropertyDNSServers: long, v1alpha1.PropertySSHKeys: long}}).Validate() {
		got = append(got, keyOf(err))
		if !strings.Contains(err.Error(), "60000") || !strings.Contains(err.Error(), "1000 are the most") || len(err.Error()) > 1000 {
			t.Errorf("it does not say that there are too many, or says too much: %s", err)
		}
	}
	if diff := cmp.Diff([]string{v1alpha1.PropertyDNSServers, v1alpha1.PropertyNetworkIPRange, v1alpha1.PropertySSHKeys}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	thousand := strings.Join(strings.SplitN(long, ",", 1001)[:1000], ",")
	if faults := Merge(Layer{"Machine a/m",
		map[string]string{v1alpha1.PropertySSHKeys: thousand, v1alpha1.PropertyDNSServers: thousand}}).Validate(); len(faults) > 0 &&
		strings.Contains(faults[0].Error(), "the most") {
		t.Errorf("a thousand are not too many: %v", faults)
	}
}

func TestDocuments(t *testing.T) {
	provider, machine := "NodeProvider p", "Machine a/m"
	const document, template = v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate
	cases := map[string]struct {
		reason                 string
		layers                 []Layer
		wantText, wantTemplate string
	}{
		"Neither":   {"nothing is no error", nil, "", ""},
		"Document":  {"written out", []Layer{{provider, map[string]string{document: "d"}}}, "d", ""},
		"Template":  {"by name", []Layer{{provider, map[string]string{template: "t"}}}, "", "t"},
		"BothInOne": {"in one object the document wins", []Layer{{provider, map[string]string{document: "d", template: "t"}}}, "d", ""},
		"SpecificTemplate": {"the Machine wants its template",
			[]Layer{{provider, map[string]string{document: "d"}}, {machine, map[string]string{template: "t"}}}, "", "t"},
		"SpecificDocument": {"the Machine wants its document",
			[]Layer{{provider, map[string]string{template: "t"}}, {machine, map[string]string{document: "d"}}}, "d", ""},
		"TakenAway": {"the Machine wants none", []Layer{{provider, map[string]string{document: "d"}}, {machine, map[string]string{document: ""}}},
			"", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set := Merge(tc.layers...)
			if got := templateOf(set); set.UserData() != tc.wantText || got != tc.wantTemplate {
				t.Errorf("%s: got %q, %q", tc.reason, set.UserData(), got)
			}
		})
	}
	network := Merge(Layer{provider, map[string]string{v1alpha1.PropertyNetworkData: "d"}},
		Layer{machine, map[string]string{v1alpha1.PropertyNetworkDataTemplate: "t"}})
	if name := templateOf(network); name != "t" || network.NetworkData() != "" {
		t.Errorf("network data goes the same way: %q, %q", name, network.NetworkData())
	}
}

// templateOf is the name of the template that makes a document, empty if none does.
func templateOf(set Set) string {
	for _, named := range set.References() {
		if !named.Overridden {
			return named.Name
		}
	}
	return ""
}

func TestSSHKeys(t *testing.T) {
	got, err := Merge(Layer{"Machine a/m", map[string]string{v1alpha1.PropertySSHKeys: "me, team,me"}}).SSHKeys()
	if diff := cmp.Diff([]string{"me", "team"}, got); diff != "" || err != nil {
		t.Errorf("each once, in order: %v\n%s", err, diff)
	}
	_, err = Merge(Layer{"Machine a/m", map[string]string{v1alpha1.PropertySSHKeys: "me,,team"}}).SSHKeys()
	if err == nil || !strings.Contains(err.Error(), `property karpenter.metal3.io/ssh-keys of Machine a/m ("me,,team") holds "", which `+
		`cannot be the name of an SSHKey`) {
		t.Errorf("a name is missing: %v", err)
	}
}

func TestEntries(t *testing.T) {
	set := Merge(
		Layer{"NodeProvider p", map[string]string{v1alpha1.PropertyUserData: "#cloud-config\npassword: secret", "gone": "x", "a": "p"}},
		Layer{"Machine a/m", map[string]string{"a": "m", "gone": "", v1alpha1.PropertyNetworkData: "secret",
			v1alpha1.PropertyImageURL: "https://me:secret@images/x.raw?sig=secret", "long": strings.Repeat("x", 300)}},
	)
	want := []v1alpha1.MachineProperty{
		{Key: "a", Value: "m", Source: "Machine a/m"},
		{Key: v1alpha1.PropertyImageURL, Value: "https://me:xxxxx@images/x.raw?xxxxx", Source: "Machine a/m"},
		{Key: v1alpha1.PropertyNetworkData, Value: "(6 bytes)", Source: "Machine a/m"},
		{Key: v1alpha1.PropertyUserData, Value: "(30 bytes)", Source: "NodeProvider p"},
		{Key: "long", Value: strings.Repeat("x", 256) + "... (300 bytes)", Source: "Machine a/m"},
	}
	if diff := cmp.Diff(want, set.Entries()); diff != "" {
		t.Errorf("what is shown, and where it comes from, without secrets (-want +got):\n%s", diff)
	}
	_, err := Merge(Layer{"Machine a/m", map[string]string{v1alpha1.PropertyImageURL: "ftp://me:secret@images/x.raw?sig=secret"}}).Image()
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an error shows credentials: %v", err)
	}
}

// FuzzValidate looks for values that make it panic, and for errors without a key.
func FuzzValidate(f *testing.F) {
	f.Add("ubuntu", "https://a/b.qcow2", strings.Repeat("a", 64), "sha256", "me,you", "t")
	f.Fuzz(func(t *testing.T, image, url, checksum, kind, keys, template string) {
		set := Merge(Layer{"Machine a/m",
			map[string]string{v1alpha1.PropertyOSImage: image, v1alpha1.PropertyImageURL: url, v1alpha1.PropertyImageChecksum: checksum,
				v1alpha1.PropertyImageChecksumType: kind, v1alpha1.PropertySSHKeys: keys, v1alpha1.PropertyUserDataTemplate: template,
				v1alpha1.PropertyServerName: image}})
		for _, err := range set.Validate() {
			if keyOf(err) == "" {
				t.Errorf("no key: %v", err)
			}
		}
		set.Entries()
	})
}
