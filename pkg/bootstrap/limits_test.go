// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// memoryLimit is far more memory than rendering the largest document takes, and far less than a bomb would.
const memoryLimit = 1 << 30

// A template, or the list that it loops over, may be wrong or malicious. The manager must not run out of memory or
// time.
func TestRenderIsBounded(t *testing.T) {
	const where = "cloudInitTemplate of MachineConfigTemplate bomb"
	big := strings.Repeat("a", 512<<10)
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"Doubling": {"2^60 bytes", `{{ $s := "x" }}{{ range 60 }}{{ $s = print $s $s }}{{ end }}`,
			[]string{"line 1", "error calling print", "at most 1048576 bytes", "fetch it at boot"}},
		"Escapes": {"each backslash becomes two, and each of them", `{{ "\\\\" ` + strings.Repeat("| js ", 60) + `}}`,
			[]string{"error calling js", "too large"}},
		"Quotes": {"the same by quote", `{{ "\"" ` + strings.Repeat("| quote ", 60) + `}}`, []string{"error calling quote", "too large"}},
		"Lists": {"lists of lists of lists", `{{ $s := list "x" }}{{ range 60 }}{{ $s = list $s $s }}{{ end }}{{ $s }}`,
			[]string{"error calling list", "too large"}},
		"Deep": {"a list in a list in a list", `{{ $s := list }}{{ range 200 }}{{ $s = list $s }}{{ end }}`,
			[]string{"error calling list", "more than 100 deep"}},
		"Itself": {"a map without an end", `{{ $d := dict }}{{ $e := dict "d" $d }}{{ $_ := set $d "e" $e }}`,
			[]string{"error calling set", "or one holds itself"}},
		"Merged": {"a map into a part of itself", `{{ $d := dict "a" (dict) }}{{ range 100 }}` +
			`{{ $_ := mergeOverwrite $d (dict "a" $d) }}{{ end }}`, []string{"error calling mergeOverwrite", "more than 100 deep"}},
		"Shared": {"a map that grows in each of its places", `{{ $d := dict }}{{ $l := list }}{{ range 2000 }}{{ $l = append $l $d }}{{ end }}` +
			`{{ $_ := set $d "a" .Values.Properties.big }}{{ $l }}`, []string{"line 1", "the value is too large"}},
		"SharedKey": {"likewise, as a key", `{{ $d := dict }}{{ $l := list }}{{ range 2000 }}{{ $l = append $l $d }}{{ end }}` +
			`{{ $_ := set $d "a" .Values.Properties.big }}{{ index .Values $l }}`, []string{"a key must be a text, not []interface {}"}},
		"Cat": {"one value in many places", `{{ $s := .Values.Properties.big }}{{ cat ` + strings.Repeat(`$s `, 2000) + `}}`,
			[]string{"error calling cat", "too large"}},
		"Repeat": {"one call", `{{ repeat 1000000000 "abc" }}`, []string{"error calling repeat", "too large"}},
		"Until":  {"one call", `{{ until 1000000000 }}`, []string{"cannot count with 1000000000: write -1048576 to 1048576"}},
		"UntilStep": {"a step beyond the largest number", `{{ untilStep 0 9223372036854775807 4611686018427387904 }}`,
			[]string{"cannot count with 9223372036854775807"}},
		"Seq": {"one call", `{{ seq 1 2 1000000000 }}`, []string{"cannot count with 1000000000"}},
		"WrapWith": {"the separator is the whole", `{{ wrapWith 1 .Values.Properties.big .Values.Properties.big }}`,
			[]string{"error calling wrapWith", "too large"}},
		"Groups": {"the match is the whole, many times", `{{ regexReplaceAll ".*" .Values.Properties.big (repeat 1000 "$0") }}`,
			[]string{"error calling regexReplaceAll", "too large"}},
		"Expression": {"a short one becomes a large one", `{{ regexMatch "((a?){30}){30}z" .Values.Properties.big }}`,
			[]string{"the expression is too large for a text of 524288 bytes"}},
		"LongExpression": {"likewise", `{{ regexMatch .Values.Properties.big "a" }}`,
			[]string{"error calling regexMatch", "at most 1024 bytes of an expression, not 524288"}},
		"Matches": {"each reads the rest of the text", `{{ regexReplaceAll "(?s).*z|a" .Values.Properties.big "b" }}`,
			[]string{"error calling regexReplaceAll", "rendering takes longer"}},
		"Version": {"likewise", `{{ semverCompare .Values.Properties.big "1.0.0" }}`,
			[]string{"error calling semverCompare", "at most 1024 bytes"}},
		"Uniq": {"each item with each other", `{{ uniq (until 100000) }}`, []string{"error calling uniq", "too long to compare"}},
		"Floats": {"each makes the exact result longer", `{{ mulf ` + strings.Repeat(`1e308 `, 2000) + `}}`,
			[]string{"error calling mulf", "at most 1000 numbers, not 1999"}},
		"Pretty": {"each item is indented", `{{ print (repeat 90 "[") "0" (repeat 50000 ",0") (repeat 90 "]") | fromJson | toPrettyJson }}`,
			[]string{"error calling fromJson", "too large"}},
		"Variables": {"each keeps its value", strings.Repeat(`{{ $x := upper .Values.Properties.big }}`, 200),
			[]string{"error calling upper", "make fewer of them"}},
		"Replace": {"each letter becomes the whole", `{{ .Values.Properties.big | replace "a" .Values.Properties.big }}`,
			[]string{"error calling replace", "too large"}},
		"Join": {"the separator is the whole", `{{ splitList "," .Values.Properties.list | join .Values.Properties.big }}`,
			[]string{"error calling join", "too large"}},
		"Indentation": {"one call", `{{ .Values.Properties.list | replace "," "\n" | indent 100 }}`,
			[]string{"error calling indent", "too large"}},
		"Indent": {"one call", `{{ indent 1000000000 "x" }}`, []string{"cannot indent by 1000000000: write 0 to 100"}},
		"Width":  {"text of nothing", `{{ printf "%900000d%900000d" 1 1 }}`, []string{"error calling printf", "no width above 999"}},
		"Star":   {"a width among the values", `{{ printf "%*d" 900000 1 }}`, []string{"error calling printf", "neither [ nor *"}},
		"Again": {"one value in many places", `{{ printf "%[1]s%[1]s%[1]s" .Values.Properties.big }}`,
			[]string{"error calling printf", "neither [ nor *"}},
		"LongFormat": {"many widths", `{{ printf .Values.Properties.big }}`, []string{"error calling printf", "at most 1024 bytes"}},
		"ListWidth":  {"a width of each item", `{{ printf "%999d" (until 100000) }}`, []string{"error calling printf", "use print or toJson"}},
		"Split": {"an item for each letter, often", strings.Repeat(`{{ $x := splitList "" .Values.Properties.big }}`, 20),
			[]string{"error calling splitList", "make fewer of them"}},
		"Loops": {"no output, and no end", `{{ range 100000 }}{{ range 100000 }}{{ end }}{{ end }}`,
			[]string{"line 1", "rendering takes longer than 5s: loop over less"}},
		"LongLoop": {"a loop over a number needs no list", `{{ range 9000000000000000000 }}{{ end }}`, []string{"rendering takes longer"}},
		"Pipeline": {"no loop at all", `{{ $s := .Values.Properties.big }}{{ ` + strings.Repeat(`contains "ab" $s | or (`, 50000) + `1` +
			strings.Repeat(`)`, 50000) + ` }}`, []string{"max expression depth"}},
		"Input": {"a loop over an input", `{{ $l := splitList "," .Values.Properties.list }}{{ range $l }}{{ range $l }}{{ end }}{{ end }}`,
			[]string{"rendering takes longer"}},
		"Templates": {"a billion laughs", laughs(), []string{"templates are called more than 1000 times"}},
		"Output": {"much of little", `{{ range 60000 }}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{{ end }}`,
			[]string{"makes a document of more than 1048576 bytes", "have the server fetch it at boot"}},
		"Recursion": {"frames on the stack, of which Go takes no more than 1 GB before it ends the process", `{{ define "a" }}` +
			nested(90, `{{ template "a" }}`) + `{{ end }}{{ template "a" }}`, []string{"line 1", "templates are called more than 1000 times"}},
		"DeepNesting": {"one template", nested(30000, ""), []string{"line 1", "conditions and loops are more than 100 deep"}},
		"BigNumber": {"one call of a method makes a number of a terabyte",
			`{{ $n := .Values.NodeClaim.Spec.Resources.cpu.AsDec.UnscaledBig }}{{ $n.Lsh ($n.SetBit $n 1 1) 8000000000000 }}`,
			[]string{"line 1", "can't evaluate field AsDec"}},
		"Layout": {"each digit of a layout becomes two", `{{ .Values.NodeClaim.CreationTimestamp.Format "2" }}`,
			[]string{"can't evaluate field Format"}},
		"Crypto": {"keys take long", `{{ genPrivateKey "rsa" }}`, []string{`"genPrivateKey" of sprig is not available`, "makes keys"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
			values.Properties = map[string]string{"big": big, "list": strings.Repeat("a,", 30000)}
			values.NodeClaim.Spec.Resources = corev1.ResourceList{"cpu": resource.MustParse("8")}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			timeout := poll.Patience() // another limit ends it, however slow the machine is
			if strings.HasPrefix(tc.want[len(tc.want)-1], "rendering takes longer") {
				timeout = 200 * time.Millisecond // they would spin for all of the time
			}
			_, err := render(Template{Name: where, Text: tc.text}, values, timeout)
			runtime.ReadMemStats(&after)
			var found *TemplateError
			if !errors.As(err, &found) {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			for _, want := range append(tc.want, where) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, want)
				}
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > memoryLimit {
				t.Errorf("%s: %d bytes of memory were used", tc.reason, used)
			}
			if strings.Contains(err.Error(), stepName) || strings.Contains(err.Error(), callName) {
				t.Errorf("the error has text that is not in the template: %v", err)
			}
		})
	}
}

// nested is a template in so many conditions.
func nested(depth int, inner string) string {
	return strings.Repeat(`{{ if 1 }}`, depth) + inner + strings.Repeat(`{{ end }}`, depth)
}

// laughs are templates that each call the one before twice.
func laughs() string {
	text := &strings.Builder{}
	text.WriteString(`{{ define "0" }}{{ end }}`)
	for n := range 50 {
		fmt.Fprintf(text, `{{ define "%d" }}{{ template "%d" }}{{ template "%d" }}{{ end }}`, n+1, n, n)
	}
	return text.String() + `{{ template "50" }}`
}

// What a document may need is not refused.
func TestRenderAllows(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"LargeFile": {"a file of 200 KiB, indented", `{{ .Values.Properties.file | indent 2 | len }}`, "208002"},
		"Hosts": {"a line for each server of a large fleet", `{{ $last := "" }}{{ range 3000 }}{{ $last = printf "10.%d.%d.%d node-%d" 1 ` +
			`(div . 256) (mod . 256) . }}{{ end }}{{ $last }}`, "10.1.11.183 node-2999"},
		"Nil": {"what is nothing is shown as text/template shows it",
			`{{ get .Values.Properties "a" }}|{{ .Values.NodeClaim.Spec.TenantClusterRef }}`, "|<no value>"},
		"Numbers": {"properties are text, and can be numbers", `{{ add (int "3") 2 }} {{ sub 5 2 }} {{ mul 3 4 }} {{ div 7 2 }} {{ mod 7 2 }}`,
			"5 3 12 3 1"},
		"Format": {"as fmt has it", `{{ printf "%05.1f %q * 9999999" 1.5 "x" }} {{ html "<" }} {{ print 1 2 "a" }}`,
			`001.5 "x" * 9999999 &lt; 1 2a`},
		"Host": {"what is known of the server", `{{ .Values.BareMetalHost.Status.HardwareDetails | toJson | len | lt 100 }} {{ (index ` +
			`.Values.BareMetalHost.Status.HardwareDetails.NIC 0).MAC }}`, "true 00:00:5e:00:53:01"},
		"Merge": {"a map into a part of itself", `{{ $d := dict "a" (dict) }}{{ merge $d (dict "a" $d) (dict "a" $d) | toJson }}`,
			`{"a":{"a":{}}}`},
		"Named": {"types of the API are plain text and numbers",
			`{{ if eq .Values.NodeClaim.Status.Phase "" }}new{{ end }} {{ add .Values.BareMetalHost.Status.HardwareDetails.RAMMebibytes 1 }} {{ ` +
				`.Values.NodeClaim.Spec.Resources.cpu }}`, "new 1048577 8"},
		"Embedded": {"by both of their names", `{{ .Values.NodeClaim.Name }} {{ .Values.NodeClaim.ObjectMeta.Name }}`, "gpu-7f3k2 gpu-7f3k2"},
		"Recursion": {"templates that call themselves, and end", `{{ define "a" }}{{ if gt . 0 }}x{{ template "a" (sub . 1) }}{{ end }}{{ end ` +
			`}}{{ template "a" 90 }}{{ template "a" 90 }}`, strings.Repeat("x", 180)},
		"ElseIf": {"a case for each rack", `{{ if eq 1 2 }}a` + strings.Repeat(`{{ else if eq 1 2 }}b`, 90) + `{{ else }}c{{ end }}`, "c"},
		"Break": {"loops end as they did", `{{ range $i, $e := list "a" "b" "c" }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $e }}{{ else ` +
			`}}none{{ end }}{{ range list }}x{{ else }}none{{ end }}`, "acnone"},
		"Templates": {"templates take and give as they did", `{{ define "a" }}{{ with .Project }}{{ . }}{{ end }}{{ end }}{{ template "a" ` +
			`.Values }}{{ block "b" 2 }}{{ . }}{{ end }}`, "team-a2"},
		"Whitespace": {"nothing is added", "a\n{{- range 2 }}\n- {{ . }}\n{{- end }}\n", "a\n- 0\n- 1\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
			values.NodeClaim.Spec.Resources = corev1.ResourceList{"cpu": resource.MustParse("8")}
			values.Properties = map[string]string{"file": strings.Repeat(strings.Repeat("x", 49)+"\n", 4000)}
			got, err := Render(Template{Name: "t", Text: tc.text}, values)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
