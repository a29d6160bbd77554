// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allowance is far more memory than rendering the largest document takes, and far less than a bomb would.
const allowance = 1 << 30

// A template, or what it loops over, is written by somebody who may be wrong or mean harm. The manager does other
// people's work too: it must not run out of memory or time.
func TestRenderIsBounded(t *testing.T) {
	const where = "cloudInitTemplate of MachineConfigTemplate bomb"
	big := strings.Repeat("a", 512<<10)
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"Doubling":     {"2^60 bytes", `{{ $s := "x" }}{{ range until 60 }}{{ $s = print $s $s }}{{ end }}`, []string{"line 1", "error calling print", "at most 1048576 bytes", "fetch it at boot"}},
		"Lists":        {"lists of lists of lists", `{{ $s := list "x" }}{{ range until 60 }}{{ $s = list $s $s }}{{ end }}{{ $s }}`, []string{"error calling list", "too large"}},
		"Shared":       {"what is printed grows after it was put together", `{{ $d := dict }}{{ $l := list $d $d $d $d $d $d $d $d }}{{ $m := list $l $l $l $l $l $l $l $l }}{{ $_ := set $d "a" (repeat 500000 "x") }}{{ $m }}`, []string{"too large"}},
		"Repeat":       {"one call", `{{ repeat 1000000000 "x" }}`, []string{"error calling repeat", "too large", "make less of it"}},
		"RepeatInput":  {"of an input", `{{ repeat 100 .Values.Properties.big }}`, []string{"error calling repeat", "too large"}},
		"Until":        {"numbers", `{{ until 1000000000 }}`, []string{"error calling until", "too large"}},
		"UntilStep":    {"numbers", `{{ untilStep 0 1000000000 1 }}`, []string{"error calling untilStep", "too large"}},
		"Seq":          {"numbers", `{{ seq 1 1000000000 }}`, []string{"error calling seq", "too large"}},
		"Replace":      {"each letter becomes the whole", `{{ .Values.Properties.big | replace "a" .Values.Properties.big }}`, []string{"error calling replace", "too large"}},
		"RegexReplace": {"each match becomes the whole", `{{ regexReplaceAll "a" .Values.Properties.big .Values.Properties.big }}`, []string{"error calling regexReplaceAll", "too large"}},
		"Reference":    {"the match again and again", `{{ regexReplaceAll "a+" .Values.Properties.big "$0$0$0$0$0" }}`, []string{"error calling regexReplaceAll", "too large"}},
		"Pattern":      {"many states for each letter", `{{ regexMatch "(a{0,500}){0,2}b" .Values.Properties.big }}`, []string{"error calling regexMatch", "units of work"}},
		"LongPattern":  {"it takes memory before it is used", `{{ regexMatch .Values.Properties.big "a" }}`, []string{"error calling regexMatch", "at most 1000 bytes"}},
		"Join":         {"the separator is the whole", `{{ until 1000 | join .Values.Properties.big }}`, []string{"error calling join", "too large"}},
		"Wrap":         {"the separator is the whole", `{{ wrapWith 1 .Values.Properties.big .Values.Properties.big }}`, []string{"error calling wrapWith", "too large"}},
		"Width":        {"text of nothing", `{{ printf "%900000d%900000d" 1 1 }}`, []string{"error calling printf", "too large"}},
		"Star":         {"a width among the values", `{{ printf "%*d" 900000 1 }}`, []string{"error calling printf", "write the number into the format"}},
		"Again":        {"one value in many places", `{{ printf "%[1]s%[1]s%[1]s" .Values.Properties.big }}`, []string{"error calling printf", "too large"}},
		"Uniq":         {"each with each other", `{{ until 60000 | uniq | len }}`, []string{"error calling uniq", "units of work"}},
		"Cutset":       {"each with each other", `{{ trimAll .Values.Properties.big .Values.Properties.big }}`, []string{"error calling trimAll", "units of work"}},
		"Split":        {"a map entry for each letter", `{{ splitList "" .Values.Properties.big | len }}`, []string{"error calling splitList", "too large"}},
		"Nested":       {"a list in a list in a list", `{{ repeat 500 "[" | fromJson }}{{ $x := printf "%s%s" (repeat 500 "[") (repeat 500 "]") | fromJson }}{{ $x | toPrettyJson }}`, []string{"make them flatter"}},
		"Loops":        {"no output, and no end", `{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}`, []string{"line 1", "the template takes more than the 67108864 units of work", "nest fewer loops"}},
		"LongLoop":     {"a loop over a number needs no list", `{{ range 9000000000000000000 }}{{ end }}`, []string{"units of work"}},
		"Input":        {"a loop over an input", `{{ range splitList "," .Values.Properties.list }}{{ range splitList "," $.Values.Properties.list }}{{ end }}{{ end }}`, []string{"units of work"}},
		"Templates":    {"a billion laughs", laughs(), []string{"units of work"}},
		"Output":       {"much of little", `{{ range until 60000 }}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{{ end }}`, []string{"makes a document of more than 1048576 bytes", "have the server fetch it at boot"}},
		"Recursion":    {"frames on the stack, of which Go takes no more than 1 GB before it ends the process", `{{ define "a" }}` + nested(400, `{{ template "a" }}`) + `{{ end }}{{ template "a" }}`, []string{"line 1", "templates call each other more than 100 deep"}},
		"DeepNesting":  {"one template", nested(30000, ""), []string{"line 1", "conditions and loops are more than 500 deep"}},
		"Undoing":      {"the count of the calls", `{{ define "a" }}{{ countLeave }}{{ template "a" }}{{ end }}{{ template "a" }}`, []string{"line 1", "not defined"}},
		"BigNumber":    {"one call of a method makes a number of a terabyte", `{{ $n := .Values.NodeClaim.Spec.Resources.Cpu.AsDec.UnscaledBig }}{{ $n.Lsh ($n.SetBit $n 1 1) 8000000000000 }}`, []string{"line 1", "$n.Lsh is given an argument", "methods with arguments are not offered"}},
		"Scaled":       {"one call of a method counts to 10^2000000000", `{{ (.Values.NodeClaim.Spec.Resources.Cpu.AsDec).Round 1 2000000000 1 }}`, []string{"methods with arguments"}},
		"Layout":       {"each digit of a layout becomes two", `{{ $x := "2" }}{{ range until 40 }}{{ $x = $x | $.Values.NodeClaim.CreationTimestamp.Format }}{{ end }}`, []string{"methods with arguments"}},
		"InnerMethod":  {"an argument of a function", `{{ with len (print (.Values.NodeClaim.CreationTimestamp.Format "2")) }}{{ . }}{{ end }}`, []string{"methods with arguments"}},
		"Crypto":       {"keys take long", `{{ genPrivateKey "rsa" }}`, []string{`"genPrivateKey" not defined`, "not offered here"}},
		"Certificate":  {"certificates take long", `{{ genCA "a" 1 }}`, []string{`"genCA" not defined`, "not offered here"}},
		"Scrypt":       {"it takes 32 MiB each time", `{{ derivePassword 1 "long" "a" "b" "c" }}`, []string{`"derivePassword" not defined`, "it takes long and much memory on purpose"}},
		"Bcrypt":       {"it takes long", `{{ htpasswd "a" "b" }}`, []string{`"htpasswd" not defined`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
			values.Properties = map[string]string{"big": big, "list": strings.Repeat("a,", 30000)}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Render(Template{Name: where, Text: tc.text}, values)
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
			if used := after.TotalAlloc - before.TotalAlloc; used > allowance {
				t.Errorf("%s: %d bytes of memory were used", tc.reason, used)
			}
			if strings.Contains(err.Error(), stepName) || strings.Contains(err.Error(), showName) {
				t.Errorf("the error speaks of what nobody has written: %v", err)
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
func TestRenderLeavesRoom(t *testing.T) {
	cases := map[string]struct{ reason, text, want string }{
		"LargeFile":  {"a file of 200 KiB, indented", `{{ .Values.Properties.file | indent 2 | len }}`, "208002"},
		"Hosts":      {"a line for each server of a large fleet", `{{ $all := list }}{{ range until 3000 }}{{ $all = printf "10.%d.%d.%d node-%d" 1 (div . 256) (mod . 256) . }}{{ end }}{{ $all }}`, "10.1.11.183 node-2999"},
		"Nil":        {"what is nothing is shown as before", `{{ get (dict) "a" }}|{{ index (dict "a" nil) "a" }}`, "|<no value>"},
		"Types":      {"arguments are converted as before", `{{ add 1 2.0 "3" }} {{ trunc 2 "abc" }} {{ ternary "a" "b" true }} {{ printf "%05.1f %q * 9999999" 1.5 "x" }} {{ html "<" }} {{ print 1 2 "a" }}`, `6 ab a 001.5 "x" * 9999999 &lt; 1 2a`},
		"Regex":      {"as sprig has it", `{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }} {{ regexFindAll "[0-9]+" "1,22" -1 }}`, "-W-xxW- [1 22]"},
		"Text":       {"as sprig has it", `{{ "a,b" | replace "," "-" }} {{ list "a" "b" | join "/" }} {{ wrapWith 1 "_" "a b" }} {{ "$1$" | trimAll "$" }} {{ list 1 1 2 | uniq }} {{ (split "," "a,b")._1 }}`, "a-b a/b a_b 1 [1 2] b"},
		"Host":       {"what is known of the server", `{{ .Values.BareMetalHost.Status.HardwareDetails | toJson | len | lt 100 }} {{ (index .Values.BareMetalHost.Status.HardwareDetails.NIC 0).MAC }}`, "true 00:00:5e:00:53:01"},
		"Methods":    {"those that take nothing", `{{ .Values.NodeClaim.GetName }} {{ (.Values.NodeClaim.Spec.Resources.Cpu).Value }}`, "gpu-7f3k2 0"},
		"Recursion":  {"templates that call themselves, and end", `{{ define "a" }}{{ if . }}x{{ template "a" (rest .) }}{{ end }}{{ end }}{{ template "a" (until 90) }}{{ template "a" (until 90) }}`, strings.Repeat("x", 180)},
		"ElseIf":     {"a case for each rack", `{{ if eq 1 2 }}a` + strings.Repeat(`{{ else if eq 1 2 }}b`, 400) + `{{ else }}c{{ end }}`, "c"},
		"Break":      {"loops end as they did", `{{ range $i, $e := list "a" "b" "c" }}{{ if eq $i 1 }}{{ continue }}{{ end }}{{ $e }}{{ else }}none{{ end }}{{ range list }}x{{ else }}none{{ end }}`, "acnone"},
		"Templates":  {"templates take and give as they did", `{{ define "a" }}{{ with .x }}{{ . }}{{ end }}{{ end }}{{ template "a" (dict "x" 1) }}{{ block "b" 2 }}{{ . }}{{ end }}`, "12"},
		"Whitespace": {"nothing is added", "a\n{{- range until 2 }}\n- {{ . }}\n{{- end }}\n", "a\n- 0\n- 1\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			values := exampleValues()
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
