// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestCommands asks kubectl, in a cluster with the neighbours' kinds, what the commands mean that the docs, the charts and the
// messages of our programs tell people to type. A type that is ours by its name must be ours to kubectl.
func TestCommands(t *testing.T) {
	environment := env.NewEnvironment(t)
	neighbours := install(t, environment)
	k := kubectl{kubeconfig: environment.Kubeconfig(t, ""), cache: t.TempDir()}
	t.Run("Objects", func(t *testing.T) { testObjects(t, environment, k) })

	for word, got := range k.resources(t, "machines", "ipaddresses", "kmc") {
		if group, _, _ := strings.Cut(got, "/"); !neighbours.Has(group) {
			t.Errorf("kubectl get %s reads %s: the neighbours are not there, and the test shows nothing", word, got)
		}
	}

	ours, known := map[string]string{}, map[string]string{}
	var full, short []string
	for _, definition := range definitions(t) {
		names := definition.Spec.Names
		if !slices.Contains(names.Categories, "karpenter-metal3") {
			t.Errorf("%s is not in the category karpenter-metal3", definition.Name)
		}
		for _, word := range slices.Concat([]string{names.Plural, names.Singular, definition.Name}, names.ShortNames) {
			ours[word] = definition.Spec.Group + "/" + names.Plural
		}
		full, short = append(full, definition.Name), append(short, names.ShortNames[len(names.ShortNames)-1])
	}
	maps.Copy(known, k.resources(t, full...))
	maps.Copy(known, k.resources(t, short...))
	for word, got := range known {
		if got != ours[word] {
			t.Errorf("kubectl get %s reads %s, want %s", word, got, ours[word])
		}
	}

	found := map[string]string{} // types and the first place that has them
	for _, file := range files(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range typesIn(string(content)) {
			if found[word] == "" && !absent.Has(word) {
				found[word] = file
			}
		}
	}
	if len(found) < 12 || found["machines.karpenter.metal3.io"] == "" || found["baremetalhost"] == "" {
		t.Errorf("the types of commands are %v: the test does not read them", found)
	}
	t.Logf("%d types in commands", len(found))
	for word := range found {
		got, seen := known[word]
		if !seen {
			got = k.resources(t, word)[word] // of two words for the same, kubectl reads one
		}
		group, _, _ := strings.Cut(got, "/")
		switch want, isOurs := ours[word]; {
		case isOurs && got != want:
			t.Errorf("%s: kubectl get %s reads %s, want %s: write the name with its group", found[word], word, got, want)
		case !isOurs && neighbours.Has(group) && !strings.Contains(word, "."):
			t.Errorf("%s: kubectl get %s reads %s", found[word], word, got)
		}
	}
}

// definitions are those of all kinds of ours.
func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	management, err := apis.ManagementCRDs()
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := apis.TenantCRDs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(management, tenant)
}

// testObjects: with an object of each kind of a name, the name with its group returns ours only.
func testObjects(t *testing.T, environment *env.Environment, k kubectl) {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "our-machine"}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "gpu"}
	address := &v1alpha1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.5"}}
	address.Spec = v1alpha1.IPAddressSpec{Address: "10.0.0.5", PrefixLength: 24, MachineRef: v1alpha1.MachineReference{
		Namespace: "default", Name: "our-machine", UID: "1"}}
	for _, object := range []client.Object{
		machine,
		other("cluster.x-k8s.io/v1beta2", "Machine", "one", template()),
		other("machine.openshift.io/v1beta1", "Machine", "one", nil),
		address,
		other("ipam.metal3.io/v1alpha1", "IPAddress", "one", nil),
		other("ipam.cluster.x-k8s.io/v1beta2", "IPAddress", "one", map[string]any{"address": "10.0.0.1", "prefix": int64(24),
			"claimRef": map[string]any{"name": "one"}, "poolRef": map[string]any{"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "one"}}),
	} {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	const ourMachine, ourAddress = "machine.karpenter.metal3.io/our-machine\n", "ipaddress.karpenter.metal3.io/10.0.0.5\n"
	for words, want := range map[string]string{
		"machines.karpenter.metal3.io": "machine.karpenter.metal3.io/our-machine\n",
		"kmm,kmip":                     ourMachine + ourAddress,
		"machines.karpenter.metal3.io,ipaddresses.karpenter.metal3.io": ourMachine + ourAddress,
		"karpenter-metal3": ourAddress + ourMachine,
		"machines":         "machine.cluster.x-k8s.io/one\n",
	} {
		if got, _ := k.get(t, words); got != want {
			t.Errorf("kubectl get %s prints %q, want %q", words, got, want)
		}
	}
}

func other(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

// template is the spec of a Machine of Cluster API.
func template() map[string]any {
	return map[string]any{"clusterName": "workload", "bootstrap": map[string]any{"dataSecretName": "worker"},
		"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Machine", "name": "worker-7"}}
}

// absent are types of Ironic, cert-manager and Kueue, which are not installed here.
var absent = sets.New("ironic", "ironics", "certificates", "workloads")

// files are those with commands for people: pages, what the charts print, and the programs with their messages.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, root := range []string{"README.md", "CONTRIBUTING.md", "docs", "designs", "charts", "examples", "config", "pkg", "cmd",
		filepath.Join("test", "sandbox", "cmd")} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && !strings.HasSuffix(path, "_test.go") {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var (
	// command is a call of kubectl in a text, or of a function of that name in code.
	command = regexp.MustCompile(`\bkubectl(?:\(["\x60]|\s+)`)
	name    = regexp.MustCompile(`^[a-z][a-z0-9.-]+$`)
	// ends are what no type is followed by without a blank, and what is around commands in texts.
	ends = "`'\"|;&()<>, \\."
	// typed are the commands of kubectl that take a type first.
	typed = []string{"get", "describe", "wait", "annotate", "label", "delete", "patch", "edit", "explain", "scale"}
	// valued are flags of kubectl that the next word belongs to.
	valued = []string{"-n", "--namespace", "-l", "--selector", "-o", "--output", "--context", "--kubeconfig", "--timeout"}
)

// typesIn are the types of objects that the calls of kubectl in a text name.
func typesIn(text string) []string {
	var all []string
	for _, match := range command.FindAllStringIndex(text, -1) {
		verb := ""
		words := strings.Fields(text[match[1]:min(len(text), match[1]+300)])
		for n := 0; n < len(words); n++ {
			word := words[n]
			switch {
			case slices.Contains(valued, word):
				n++
				continue
			case word == "-f", word == "-k", strings.HasPrefix(word, "--filename"):
				n = len(words) // the type is in the file
				continue
			case word == "kubectl":
				n = len(words) // the type came from a pipe, and this is another command
				continue
			case strings.HasPrefix(word, "-"):
				if strings.Contains(word, "`") {
					n = len(words) // a span of code ends
				}
				continue
			case verb == "" && slices.Contains(typed, word):
				verb = word
				continue
			case verb == "":
				n = len(words)
				continue
			}
			word, _, _ = strings.Cut(word, "/")
			n = len(words)
			for part := range strings.SplitSeq(word, ",") {
				if part = strings.Trim(part, ends); name.MatchString(part) {
					all = append(all, part)
				}
			}
		}
	}
	return all
}

func TestTypesIn(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"Get":       {"The type is the first word.", "$ kubectl get machines -A -o wide", []string{"machines"}},
		"Several":   {"A command may name several.", "kubectl get nodes,pods,nodetypes", []string{"nodes", "pods", "nodetypes"}},
		"Flags":     {"Flags may come first.", "kubectl -n acme describe -o yaml baremetalhost server-01", []string{"baremetalhost"}},
		"Slash":     {"A name may follow.", "kubectl annotate --overwrite machine/gpu-1 a=b", []string{"machine"}},
		"Code":      {"It may be in a sentence.", "see (`kubectl get\npods`), or `kubectl get nodetypes`.", []string{"pods", "nodetypes"}},
		"Function":  {"Our preflight makes some.", `h.kubectl("describe baremetalhost HOST")`, []string{"baremetalhost"}},
		"File":      {"Files have the type.", "kubectl delete -f machines.yaml", nil},
		"Pipe":      {"Names have the type.", "xargs kubectl delete -n acme\nkubectl get pods", []string{"pods"}},
		"Prose":     {"Not each sentence is a command.", "kubectl prints machines", nil},
		"NoType":    {"A command may stand alone.", "`kubectl describe`", nil},
		"Span":      {"A span may have flags only.", "(`kubectl scale --replicas=0`): the next", nil},
		"OtherVerb": {"Others take no type.", "kubectl apply -k folder", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, typesIn(tc.text)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// kubectl is bin/kubectl with a cluster.
type kubectl struct{ kubeconfig, cache string }

var requested = regexp.MustCompile(`verb="GET" url="[^"]+/apis?/([^"?]+)\?limit=`)

// get returns the names of all objects of some types.
func (k kubectl) get(t *testing.T, words string) (names string, read []string) {
	t.Helper()
	log := &strings.Builder{}
	command := exec.CommandContext(t.Context(), filepath.Join("..", "..", "bin", "kubectl"), "--kubeconfig", k.kubeconfig,
		"--cache-dir", k.cache, "get", words, "--all-namespaces", "--output=name", "--v=6")
	command.Stderr = log
	output, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl get %s, %v\n%s", words, err, log)
	}
	for _, found := range requested.FindAllStringSubmatch(log.String(), -1) {
		read = append(read, found[1])
	}
	return string(output), read
}

// resources are what kubectl takes words for different kinds for, by word, as group/plural.
func (k kubectl) resources(t *testing.T, words ...string) map[string]string {
	t.Helper()
	_, read := k.get(t, strings.Join(words, ","))
	if len(read) != len(words) {
		t.Fatalf("kubectl get reads %v for %v", read, words)
	}
	taken := map[string]string{}
	for n, path := range read { // [group/]version/plural
		group, plural, _ := strings.Cut(path, "/")
		if version, last, found := strings.Cut(plural, "/"); found && version != "" {
			taken[words[n]] = group + "/" + last
		} else {
			taken[words[n]] = "/" + plural
		}
	}
	return taken
}
