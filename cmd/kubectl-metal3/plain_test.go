// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// hostile erases its line, says that all is well, sets the title and the clipboard, turns the direction, and begins a line of its own.
const hostile = "\x1b[2K\r✓ everything is well\x1b]0;root@prod\a\x1b]52;c;Y3Vy\a\u009b2K\u202e\u2066\nEVIL → What to do: rm\u2028EVIL"

// messages are the fields of free text, which the API server lets anybody fill with anything.
var messages = []string{"message", "reason", "errorMessage", "description", "note", "key", "lacks"}

// enumerations are fields whose values the program compares with its own.
var enumerations = []string{"kind", "apiVersion", "type", "status", "phase", "state", "operator", "effect", "conditions", "providerID"}

// poison appends the hostile text to strings of a value of JSON: to messages and annotations, and to names and all others, too, if it is
// asked for. Times and quantities stay.
func poison(value any, field string, names bool) any {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			if field == "annotations" {
				value[key] = poison(item, "message", names)
			} else {
				value[key] = poison(item, key, names)
			}
		}
	case []any:
		for i := range value {
			value[i] = poison(value[i], field, names)
		}
	case string:
		_, noTime := time.Parse(time.RFC3339, value)
		_, noQuantity := resource.ParseQuantity(value)
		free := noTime != nil && noQuantity != nil && value != "Never" && !slices.Contains(enumerations, field)
		if slices.Contains(messages, field) || names && free {
			return value + hostile
		}
	}
	return value
}

// poisoned is a snapshot whose strings are hostile.
func poisoned(t *testing.T, snapshot *view.Snapshot, names bool) *view.Snapshot {
	t.Helper()
	for i := range snapshot.Tenant.NodeClaims {
		snapshot.Tenant.NodeClaims[i].StatusConditions().SetFalse("Launched", "X", "no capacity")
	}
	content, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		t.Fatal(err)
	}
	if content, err = json.Marshal(poison(value, "", names)); err != nil {
		t.Fatal(err)
	}
	changed := &view.Snapshot{}
	if err := json.Unmarshal(content, changed); err != nil {
		t.Fatal(err)
	}
	changed.TypeMeta = snapshot.TypeMeta
	return changed
}

// printing are arguments with which each command prints what others wrote. NAMES are those of the fleet.
var printing = map[string][]string{
	"hosts": {"hosts", "hosts -o wide", "hosts -o json", "hosts -o yaml", "hosts -o name", "hosts --show-labels -L type",
		"hosts -o custom-columns=WHY:.why --sort-by .metadata.name", "hosts -o jsonpath={.items[*].why}"},
	"fleet": {"fleet", "fleet -o yaml"}, "tenants": {"tenants -o wide", "tenants -o yaml"},
	"machines": {"machines -o wide", "machines -o json", "machines -o name"}, "capacity": {"capacity -o wide", "capacity -o yaml"},
	"explain": {"explain pod training-0", "explain pod training-1", "explain nodeclaim default-x7f2k", "explain machine acme/default-new",
		"explain host server-07", "explain host server-11", "explain nodetype h100-8x", "explain nodeclaim default-x7f2k -o yaml",
		"explain nodetype cpu -o json", "explain host nothing"},
	"issues":   {"issues", "issues -o json", "issues -o yaml"},
	"timeline": {"timeline host server-07", "timeline machine default-old", "timeline machine default-late -o yaml"},
	"what-if": {"what-if -f testdata/workload.yaml", "what-if -f testdata/workload.yaml -o yaml", "what-if -f WORKLOAD",
		"what-if -f WORKLOAD -o json"},
	"what-if drain": {"what-if drain server-07"}, "what-if without": {"what-if without rack=r2"}, "what-if add": {"what-if add 1 h100-8x"},
	"what-if rollout": {"what-if rollout h100-8x --os-image noble-2"},
	"report":          {"report --from 2025-12-01", "report --from 30d --by type -o csv", "report --from 24h -o json"},
	"snapshot":        {"snapshot -"}, "propose-types": {"propose-types", "propose-types -f testdata/resourceslices.yaml"},
	"maintenance": {"maintenance server-12 --reason x"}, "quarantine": {"quarantine server-07 --reason x"},
	"return": {"return server-11"},
	"reboot": {"reboot default-x7f2k"}, "power": {"power default-x7f2k off"},
	"register": {"register -f testdata/servers.csv --dry-run"}, "__complete": {"__complete explain pod t", "__complete return s"},
}

// printingElsewhere are the commands with a test of their own: TestHostileTop, and TestSupportBundle. The pages of ui escape what they
// show.
var printingElsewhere = []string{"top", "ui", "support-bundle"}

// checkPlain finds what a terminal would obey, and lines that others begin.
func checkPlain(t *testing.T, what, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		begins := strings.HasPrefix(strings.Trim(line, " │├└─→#\"'"), "EVIL") && !strings.HasSuffix(what, "-o yaml") // YAML folds strings
		if begins || strings.ContainsFunc(line, func(r rune) bool {
			return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
		}) {
			t.Errorf("%s prints %q", what, line)
		}
	}
}

// TestHostile: what others wrote is data, whatever prints it.
func TestHostile(t *testing.T) {
	commands := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(command *cobra.Command) {
		for _, child := range command.Commands() {
			name := strings.TrimPrefix(child.CommandPath(), "kubectl metal3 ")
			commands[name] = true
			if printing[name] == nil && !slices.Contains(printingElsewhere, name) {
				t.Errorf("kubectl metal3 %s prints, and is not tested here", name)
			}
			walk(child)
		}
	}
	walk(newCommand(genericiooptions.IOStreams{}))
	workload := filepath.Join(t.TempDir(), "workload.json")
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p" + hostile},
		"spec": map[string]any{"nodeSelector": map[string]string{"rack": hostile}, "containers": []any{map[string]string{"name": hostile}}}}
	content, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(workload, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, names := range []bool{false, true} {
		shown, found := false, 0
		for name, lines := range printing {
			if !commands[name] && name != "__complete" {
				t.Errorf("there is no command %s", name)
			}
			for _, line := range lines {
				arguments := strings.Fields(strings.ReplaceAll(line, "WORKLOAD", workload))
				for i, argument := range arguments {
					if names && slices.ContainsFunc([]string{"server-", "default-", "acme/", "h100", "training"}, func(prefix string) bool {
						return strings.HasPrefix(argument, prefix)
					}) {
						arguments[i] = view.Plain(strings.ReplaceAll(argument, "/", hostile+"/") + hostile)
					}
				}
				snapshot := fleet()
				if strings.HasPrefix(name, "what-if") {
					snapshot = planned()
				}
				out, code := onHostile(t, poisoned(t, snapshot, names), arguments)
				checkPlain(t, line, out)
				shown = shown || strings.Contains(out, "✓ everything is well")
				if code != exitError {
					found++
				}
			}
		}
		if !shown || found < 20 {
			t.Errorf("names %t: the text is shown: %t, and %d commands have found something", names, shown, found)
		}
	}
}

// onHostile runs a command on a snapshot, as a file and, if it writes, in a cluster.
func onHostile(t *testing.T, snapshot *view.Snapshot, arguments []string) (printed string, code int) {
	t.Helper()
	var out bytes.Buffer
	o := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader("yes\n"), Out: &out, ErrOut: &out},
		management: genericclioptions.NewConfigFlags(true),
		connect: func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) {
			return clusterOf(snapshot, interceptor.Funcs{}), nil
		}}
	if arguments[0] != "register" && !verbs[arguments[0]] {
		arguments = append([]string{arguments[0], "--snapshot", fileOf(t, snapshot)}, arguments[1:]...)
	}
	code = o.run(context.Background(), arguments)
	return out.String(), code
}

// TestHostileTop: the lines of top are its own, with its own colours.
func TestHostileTop(t *testing.T) {
	for _, names := range []bool{false, true} {
		snapshot, err := view.Load(fileOfContent(t, poisoned(t, fleet(), names)))
		if err != nil {
			t.Fatal(err)
		}
		screen := newTop(fleetNow{Fleet: view.New(snapshot), lost: "refused" + hostile}, nil)
		screen.width, screen.height = 400, 60
		for _, keys := range []string{"", "enter", "t"} {
			checkPlain(t, "top", ansi.Strip(screenOf(screen, keys)))
			if drawn := screen.View().Content; strings.Contains(drawn, "\x1b]") || strings.Contains(drawn, "\x1b[2K") {
				t.Errorf("top draws %q", drawn)
			}
		}
	}
}

func fileOfContent(t *testing.T, snapshot *view.Snapshot) io.Reader {
	t.Helper()
	content, err := os.ReadFile(fileOf(t, snapshot))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(content)
}
