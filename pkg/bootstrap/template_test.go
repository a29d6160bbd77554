// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	host := exampleHost()
	host.Name = "server-1"
	return Values{
		NodeClaim: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "gpu-7f3k2", Labels: map[string]string{"a": "b"}},
			Spec:       v1alpha1.MachineSpec{Resources: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}},
		},
		TypeRef: "gpu-node", ProviderRef: "metal3",
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
	if out, err := cloudInit(t, "schema", "--config-file", file(t, "user-data", rendered)); err != nil ||
		!strings.Contains(out, "Valid cloud-config") {
		t.Errorf("cloud-init does not take this (%v):\n%s\n%s", err, out, rendered)
	}
	golden(t, "rendered.yaml", rendered)

	rendered, err = Render(Template{Name: "t", Text: networkDataTemplate}, exampleValues())
	if err != nil {
		t.Fatal(err)
	}
	data, err := ReadNetworkData(rendered, exampleHost())
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
		"Text": {"the usual functions are there", `{{ "a b" | replace " " "-" | upper }} {{ list 1 2 | join "," }} {{ list "a" 1 | toJson ` +
			`}} {{ default "x" "" }} {{ trim " A " | lower }}{{ trimPrefix "a" "ab" }}{{ trimSuffix "b" "ab" }} {{ squote "x" }} {{ quote 1 }}`,
			`A-B 1,2 ["a",1] x aba 'x' "1"`},
		"Indent": {"for files in YAML", `{{ "a\nb" | indent 2 }}|{{ "a\nb" | nindent 2 }}`, "  a\n  b|\n  a\n  b"},
		"Ask": {"for conditions", `{{ contains "b" "abc" }} {{ hasPrefix "a" "abc" }} {{ hasSuffix "a" "abc" }} {{ empty "" }} {{ ternary ` +
			`1 2 false }}`, "true true false true 2"},
		"Encode": {"for files that are not text", `{{ b64enc "a" }} {{ b64dec "YQ==" }} {{ sha256sum "a" | trunc 8 }} {{ range splitList "," ` +
			`"x,y" }}[{{ . }}]{{ end }}`, "YQ== a ca978112 [x][y]"},
		"Optional": {"what may be missing can be asked for", `{{ if hasKey .Values.Properties "x" }}x{{ else }}none{{ end }}`, "none"},
		"Index": {"index does what it always did", `{{ index .Values.SSHKeys 1 | trunc 11 }} {{ index .Values.NodeClaim.Labels "a" }} {{ ` +
			`index (list 1 2) 1 }}`, "ssh-ed25519 b 2"},
		"Property": {"a property that is not set is empty, as in sprig", `[{{ .Values.Properties.foo }}]` +
			`{{ .Values.Properties.foo | default "x" }}` +
			`{{ index .Values.Properties "a/b" | default "y" }}{{ if index .Values.Properties "a/b" }}no{{ end }}{{ if .Values.Properties.foo ` +
			`}}no{{ else if $.Values.Properties.rack }}{{ with $.Values }}{{ default "z" .Properties.foo }}{{ end }}{{ end }}` +
			`{{ range $k, $v := .Values.Properties }}{{ $k }}={{ $v }}{{ (default "d" $.Values.Properties.foo) }}{{ end }}`, "[]xyzrack=r1d"},
		"Labels": {"likewise", `{{ .Values.BareMetalHost.Labels.rack | default "r0" }} {{ index .Values.NodeClaim.Annotations "x/y" | quote }} ` +
			`{{ .Values.NodeClaim.Labels.a }} {{ .Values.NodeClaim.Spec.Properties.a | default "none" }}`, `r0 "" b none`},
		"Reference": {"names of the reference's NodeClaim", `{{ .Values.NodeClaim.Spec.TypeRef }} {{ .Values.NodeClaim.Spec.ProviderRef }} ` +
			`{{ .Values.NodeClaim.Spec.VClusterRef }} {{ index .Values.NodeClaim.Spec.DesiredCapacity "nvidia.com/gpu" }}`,
			"gpu-node metal3 team-a 8"},
		"Sprig": {"as templates of Helm use it", `{{ $d := dict "a" (list 1 2) }}{{ $_ := set $d "b" "x" }}{{ range $k := keys $d }}{{ $k }}` +
			`{{ end }} {{ toJson (merge (dict "c" true) $d) }} {{ .Values.Properties.mtu | coalesce .Values.Properties.rack }} {{ "${1}" | ` +
			`regexReplaceAll "a-([0-9])" "n-a-1" }}`, `ab {"a":[1,2],"b":"x","c":true} r1 n-1`},
		"Dig": {"what may be missing in maps of maps, of which some are ours", `{{ dig "Spec" "Resources" "nvidia.com/gpu" "0" ` +
			`.Values.NodeClaim }} {{ dig "Labels" "x" "none" .Values.NodeClaim }} {{ hasKey .Values.Properties "rack" }} {{ ` +
			`keys .Values.NodeClaim.Labels }} {{ pick .Values.Properties "rack" }} {{ values .Values.Properties }}`,
			"8 none true [a] map[rack:r1] [r1]"},
		"Integers": {"arithmetic gives int64, and others take int", `{{ trunc (add 1 1) "abc" }} {{ index (list 1 2) (sub 2 1) }} {{ ` +
			`duration (mul 9 10) }} {{ slice "abc" (add 0 1) 2 }} {{ slice .Values.SSHKeys 1 | len }} {{ trunc -2 "abc" }} {{ trunc 2.0 "abc" ` +
			`}}`, "ab 2 1m30s b 1 bc ab"},
		"Get": {"what may be missing can be asked for", `{{ get .Values.Properties "x" | default "none" }}`, "none"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
			values.NodeClaim.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "team-a"}
			got, err := Render(Template{Name: "t", Text: tc.text}, values)
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
		"MissingField": {"half a configuration is worse than none", "a\nb\n{{ .Values.Nodeclaim.Name }}", 3,
			`map has no entry for key "Nodeclaim": .Values has NodeClaim, Project`},
		"MissingDeep": {"typing errors deeper down", "\n{{ .Values.NodeClaim.Nmae }}", 2,
			"<.Values.NodeClaim.Nmae>: map has no entry for key \"Nmae\""},
		"MissingIndex": {"a field by its name", "\n{{ index .Values \"Propertys\" \"a/b\" }}", 2, `map has no entry for key "Propertys"`},
		"MissingOf":    {"a typing error before the key", "{{ .Values.NodeClaim.Spce.Properties.rack }}", 1, `map has no entry for key "Spce"`},
		"NotEntries":   {"of a text", "{{ .Values.Properties.rack.row }}", 1, "can't evaluate field row"},
		"NumberOf":     {"properties have names", "{{ index .Values.Properties 1 }}", 1, "a key must be a text, not int"},
		"MissingRoot":  {"forgotten .Values", "{{ .NodeClaim.Name }}", 1, `map has no entry for key "NodeClaim"`},
		"Syntax":       {"not a template", "a\n{{ if }}", 2, "missing value for if"},
		"Unclosed":     {"not a template", "a\n{{ if true }}\n", 3, "unexpected EOF"},
		"NoFunction": {"no such function", "{{ readFile \"/etc/passwd\" }}", 1,
			`function "readFile" not defined: the functions are those of text/template and sprig`},
		"Env": {"the manager's environment holds secrets", "\n{{ env \"HOME\" }}", 2,
			`function "env" of sprig is not available, because it reads the environment`},
		"Expandenv": {"likewise", "{{ expandenv \"$HOME\" }}", 1, "it reads the environment or the network of the manager"},
		"Lookup":    {"the manager's network is not the server's", "{{ getHostByName \"a\" }}", 1, "it reads the environment or the network"},
		"Now":       {"a document must not change", "{{ now }}", 1, "it depends on the clock or the time zone"},
		"Random":    {"a document must not change", "{{ uuidv4 }}", 1, "it differs at each call"},
		"Fail":      {"templates can refuse", "\n{{ fail \"no rack\" }}", 2, "no rack"},
		"Index":     {"out of range", "{{ index .Values.SSHKeys 7 }}", 1, "index out of range"},
		"Division":  {"a panic of Go", "{{ div 1 0 }}", 1, "it does not take (int, int): runtime error: integer divide by zero"},
		"Nil":       {"likewise", "{{ first .Values.NodeClaim.Spec.TenantClusterRef }}", 1, "it does not take (<nil>)"},
		"Number":    {"text for a number", `{{ trunc "x" "abc" }}`, 1, "expected int; got string"},
		"Base64":    {"half a document is worse than none", `{{ b64dec "YQ=" }}`, 1, "illegal base64 data at input byte 3"},
		"Json":      {"likewise", `{{ fromJson "[1" }}`, 1, "unexpected end of JSON input"},
		"Regex":     {"likewise", `{{ regexReplaceAll "(" "a" "b" }}`, 1, "missing closing )"},
		"Slice":     {"out of range", `{{ slice "abc" 1 4 }}`, 1, "index out of range: 1 to 4 of 3"},
		"Endless":   {"output without end", "{{ range 1000000000 }}0123456789{{ end }}", 0, "more than 1048576 bytes"},
		"Recursion": {"a template in itself", "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}", 1,
			"templates are called more than 1000 times"},
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

// FuzzRender looks for templates that end the manager.
func FuzzRender(f *testing.F) {
	for _, text := range []string{cloudInitTemplate, networkDataTemplate, "{{ range 9 }}{{ . | quote | b64enc }}{{ end }}",
		"{{ define \"a\" }}{{ . }}{{ end }}{{ template \"a\" .Values }}", `{{ $d := dict "a" (list 1) }}{{ $_ := set $d "b" $d }}{{ merge $d }}`,
		`{{ regexReplaceAll "a*|b" "aab" "$0" | splitList "" | uniq | join "," | wrapWith 3 "-" }}`} {
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
