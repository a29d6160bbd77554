// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// cloudInitTemplate is written as in the reference.
const cloudInitTemplate = `#cloud-config
hostname: {{ .Values.NodeClaim.Name }}
users:
  - name: ubuntu
    sudo: ALL=(ALL) NOPASSWD:ALL
    ssh_authorized_keys:
    {{- range .Values.SSHKeys }}
      - {{ . }}
    {{- end }}
runcmd:
  - echo "Provisioning {{ .Values.NodeClaim.Name }} in project {{ .Values.Project }}"
  - echo {{ index .Values.Properties "rack" | upper | quote }} on {{ .Values.BareMetalHost.Name }}, {{ .Values.AllocatedIP }}/{{ .Values.PrefixLength }} via {{ .Values.Gateway }}
`

// networkDataTemplate is written as in the reference.
const networkDataTemplate = `version: 2
ethernets:
  enp1s0:
    # AllocatedIP, PrefixLength, and Gateway are supplied during IP allocation.
    addresses:
      - {{ .Values.AllocatedIP }}/{{ .Values.PrefixLength }}
    gateway4: {{ .Values.Gateway }}
    nameservers:
      addresses: [8.8.8.8, 8.8.4.4]
`

func exampleValues() Values {
	host := standInHost()
	host.Name = "server-1"
	return Values{
		NodeClaim:     &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpu-7f3k2", Labels: map[string]string{"a": "b"}}},
		Project:       "team-a",
		Properties:    map[string]string{"rack": "r1"},
		SSHKeys:       []string{exampleKey, exampleKey2},
		BareMetalHost: host,
		AllocatedIP:   "192.0.2.10",
		PrefixLength:  24,
		Gateway:       "192.0.2.1",
	}
}

func TestRenderReference(t *testing.T) {
	rendered, err := Render(Template{Name: "t", Text: cloudInitTemplate}, exampleValues())
	if err != nil {
		t.Fatal(err)
	}
	composed, err := Compose(rendered, []string{exampleKey}, mustJoin(t, exampleJoin(t)))
	if err != nil {
		t.Fatal(err)
	}
	mustBeCloudConfig(t, composed)
	golden(t, "rendered.yaml", rendered)

	rendered, err = Render(Template{Name: "t", Text: networkDataTemplate}, exampleValues())
	if err != nil {
		t.Fatal(err)
	}
	data, err := ReadNetworkData(rendered, standInHost())
	if err != nil {
		t.Fatal(err)
	}
	const mac = "eth0,00:00:5e:00:53:01"
	netplan := converted(t, data, mac)
	for _, wanted := range []string{"192.0.2.10/24", "8.8.8.8", "192.0.2.1"} {
		if !strings.Contains(netplan, wanted) {
			t.Errorf("%s is not in the configuration:\n%s", wanted, netplan)
		}
	}
}

func TestRender(t *testing.T) {
	cases := map[string]struct {
		reason, text, want string
	}{
		"Sprig":     {"the library is there", `{{ "a b" | replace " " "-" | upper }} {{ list 1 2 | join "," }} {{ dict "a" 1 | toJson }} {{ default "x" "" }}`, `A-B 1,2 {"a":1} x`},
		"Indent":    {"the bounded functions do what sprig's do", `{{ "a\nb" | indent 2 }}|{{ "a\nb" | nindent 2 }}|{{ repeat 3 "x" }}|{{ until 3 }}|{{ untilStep 0 6 2 }}|{{ seq 1 3 }}`, "  a\n  b|\n  a\n  b|xxx|[0 1 2]|[0 2 4]|1 2 3"},
		"Set":       {"dicts can be filled", `{{ $d := dict "a" 1 }}{{ $_ := set $d "b" (dict "c" 2) }}{{ $_ := merge $d (dict "a" 9 "e" 3) }}{{ $d }}`, "map[a:1 b:map[c:2] e:3]"},
		"Overwrite": {"and overwritten", `{{ mergeOverwrite (dict "a" 1) (dict "a" 2) }}`, "map[a:2]"},
		"Cycle":     {"a map in itself would overflow the stack", `{{ $d := dict }}{{ $_ := set $d "a" $d }}{{ $_ := merge $d (dict "b" $d) }}{{ len $d }}{{ $d }}`, "2map[a:map[] b:map[a:map[]]]"},
		"Optional":  {"what may be missing can be asked for", `{{ if hasKey .Values.Properties "x" }}x{{ else }}none{{ end }}`, "none"},
		"Index":     {"index does what it always did", `{{ index .Values.SSHKeys 1 | trunc 11 }} {{ index .Values.NodeClaim.Labels "a" }} {{ index (dict "a" (list 1 2)) "a" 1 }}`, "ssh-ed25519 b 2"},
		"Get":       {"what may be missing can be asked for", `{{ get .Values.Properties "x" | default "none" }}`, "none"},
		"Copy":      {"a template cannot change the Machine", `{{ .Values.NodeClaim.SetName "other" }}{{ .Values.NodeClaim.Name }}`, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
			got, err := Render(Template{Name: "t", Text: tc.text}, values)
			if name == "Copy" {
				if values.NodeClaim.Name != "gpu-7f3k2" {
					t.Errorf("%s", tc.reason)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	const where = "cloudInitTemplate of MachineConfigTemplate ubuntu"
	cases := map[string]struct {
		reason, text string
		line         int
		want         string
	}{
		"MissingField":    {"half a configuration is worse than none", "a\nb\n{{ .Values.Nodeclaim.Name }}", 3, `map has no entry for key "Nodeclaim": .Values has NodeClaim, Project`},
		"MissingDeep":     {"typing errors deeper down", "\n{{ .Values.NodeClaim.Nmae }}", 2, "<.Values.NodeClaim.Nmae>: can't evaluate field Nmae"},
		"MissingProperty": {"a property that nobody has set", "\n\n\n{{ .Values.Properties.rack2 }}", 4, `map has no entry for key "rack2"`},
		"MissingIndex":    {"a property with a slash in its key", "{{ index .Values.Properties \"a/b\" }}", 1, `map has no entry for key "a/b": use hasKey or get`},
		"MissingRoot":     {"forgotten .Values", "{{ .NodeClaim.Name }}", 1, `map has no entry for key "NodeClaim"`},
		"Syntax":          {"not a template", "a\n{{ if }}", 2, "missing value for if"},
		"Unclosed":        {"not a template", "a\n{{ if true }}\n", 3, "unexpected EOF"},
		"NoFunction":      {"no such function", "{{ readFile \"/etc/passwd\" }}", 1, `function "readFile" not defined: the functions are those of text/template and sprig`},
		"Env":             {"the manager's environment holds secrets", "\n{{ env \"HOME\" }}", 2, `function "env" not defined: it is not offered here, because it reads the machine`},
		"Expandenv":       {"likewise", "{{ expandenv \"$HOME\" }}", 1, "it reads the machine"},
		"Lookup":          {"the manager's network is not the server's", "{{ getHostByName \"a\" }}", 1, "it reads the machine"},
		"Now":             {"a document must not change", "{{ now }}", 1, "depends on the clock"},
		"Random":          {"a document must not change", "{{ uuidv4 }}", 1, "another one every time"},
		"Fail":            {"templates can refuse", "\n{{ fail \"no rack\" }}", 2, "no rack"},
		"Index":           {"out of range", "{{ index .Values.SSHKeys 7 }}", 1, "index out of range"},
		"Panic":           {"functions that panic", "{{ substr -5 9 \"a\" | b64dec | fromJson | first }}", 1, ""},
		"Repeat":          {"the manager's memory", "{{ repeat 1000000000 \"x\" }}", 1, "too large"},
		"Until":           {"the manager's memory", "{{ until 1000000000000 }}", 1, "too large"},
		"UntilOverflow":   {"it would never end", "{{ untilStep 9223372036854775800 9223372036854775807 10 }}", 1, "too large"},
		"Indentation":     {"the manager's memory", "{{ indent 1000000000 \"x\" }}", 1, "cannot indent"},
		"Endless":         {"output without end", "{{ range until 100000 }}{{ repeat 1000 \"x\" }}{{ end }}", 0, "more than 1048576 bytes"},
		"Recursion":       {"a template in itself", "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}", 1, "templates call each other more than 100 deep"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Render(Template{Name: where, Text: tc.text}, exampleValues())
			var found *TemplateError
			if !errors.As(err, &found) {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if found.Line != tc.line && name != "Endless" || !strings.Contains(found.Problem, tc.want) {
				t.Errorf("%s: got line %d, %q, want line %d and %q", tc.reason, found.Line, found.Problem, tc.line, tc.want)
			}
			if !strings.HasPrefix(err.Error(), where) || strings.Contains(err.Error(), "template: template") {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

func TestRehearse(t *testing.T) {
	values := exampleValues()
	values.BareMetalHost, values.AllocatedIP, values.Gateway, values.PrefixLength = nil, "", "", 0
	for name, text := range map[string]string{"user data": cloudInitTemplate, "network data": networkDataTemplate} {
		if _, err := Rehearse(Template{Name: name, Text: text}, values); err != nil {
			t.Errorf("a template that is right can be rehearsed without a server: %v", err)
		}
	}
	if _, err := Rehearse(Template{Name: "t", Text: "{{ .Values.BareMetalHost.Spec.BMC.Adress }}"}, values); err == nil {
		t.Error("a typing error must be found before there is a server")
	}
}

// FuzzRender looks for templates that end the manager.
func FuzzRender(f *testing.F) {
	for _, text := range []string{cloudInitTemplate, networkDataTemplate, "{{ until 9 | toString | b64enc }}", "{{ define \"a\" }}{{ . }}{{ end }}{{ template \"a\" .Values }}"} {
		f.Add(text)
	}
	values := exampleValues()
	f.Fuzz(func(t *testing.T, text string) {
		document, err := Render(Template{Name: "t", Text: text}, values)
		var found *TemplateError
		if err != nil && !errors.As(err, &found) {
			t.Errorf("not a *TemplateError: %v", err)
		}
		if len(document) > MaxDocumentBytes {
			t.Errorf("%d bytes", len(document))
		}
	})
}
