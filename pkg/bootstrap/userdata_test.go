// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"
)

// exampleUserData is written out in testdata, so that a change of what servers receive is seen in review.
//
//go:embed testdata/kubeadm.yaml
var exampleUserData string

var compareTokens = cmp.Comparer(func(a, b Token) bool { return a == b })

func TestUserData(t *testing.T) {
	j := exampleJoin(t)
	j.Labels["node-role.kubernetes.io/gpu"] = "" // a kubelet asked to set it would not start
	got, err := UserData(j)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "kubeadm.yaml", got)
}

func TestParseUserData(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, old, new) }
	}
	cases := map[string]struct {
		reason string
		change func(string) string
		want   string
		is     error
	}{
		"Own":         {reason: "what UserData writes", change: func(s string) string { return s }},
		"CRLFHeader":  {reason: "cloud-init accepts it", change: replace("#cloud-config\n", "#cloud-config\r\n")},
		"ShellLine":   {reason: "a command may be a line", change: replace("- - kubeadm\n  - join\n  - --config\n  - /etc", "- kubeadm join --config /etc")},
		"OtherPath":   {reason: "the command says where the file is", change: replace("/etc/kubernetes/kubeadm-join.yaml", "/root/j")},
		"OtherKeys":   {reason: "users have packages and users too", change: func(s string) string { return s + "packages: [jq]\nusers: [default]\n" }},
		"OtherFile":   {reason: "users have files too", change: replace("write_files:\n", "write_files:\n- path: /a\n  encoding: gz+b64\n  content: x\n")},
		"Kubelet":     {reason: "kubeadm reads other kinds beside", change: replace("    apiVersion: kubeadm", "    kind: KubeletConfiguration\n    ---\n    apiVersion: kubeadm")},
		"Empty":       {reason: "no user data is no join", change: func(string) string { return "" }, want: `first line must be "#cloud-config"`},
		"Script":      {reason: "not cloud-config", change: func(string) string { return "#!/bin/sh\n" }, want: "first line must be"},
		"BadYAML":     {reason: "not YAML", change: func(s string) string { return s + "a: [\n" }, want: "not valid YAML"},
		"Duplicate":   {reason: "cloud-init would take one of them", change: func(s string) string { return s + "hostname: b\n" }, want: `key "hostname" already set`},
		"List":        {reason: "the document is a map", change: func(string) string { return "#cloud-config\n- a\n" }, want: "not a cloud-config document"},
		"NoRunCmd":    {reason: "a file alone joins nothing", change: replace("runcmd:", "bootcmd:"), is: ErrNoJoin},
		"TwoJoins":    {reason: "which one counts", change: replace("runcmd:\n", "runcmd:\n- kubeadm join --config /a\n"), want: "more than one kubeadm join"},
		"NoConfig":    {reason: "flags are not supported", change: replace("  - --config\n", "  - --node-name\n"), want: "no --config FILE"},
		"NoFile":      {reason: "kubeadm would fail", change: replace("  path: /etc", "  path: /tmp"), want: "which it does not write"},
		"Encoded":     {reason: "would be read as text", change: replace("  owner: root:root", "  encoding: b64"), want: `encoding "b64"`},
		"OldVersion":  {reason: "v1beta3 has other fields", change: replace("v1beta4", "v1beta3"), want: `apiVersion "kubeadm.k8s.io/v1beta3"`},
		"OtherKind":   {reason: "an InitConfiguration joins nothing", change: replace("JoinConfiguration", "InitConfiguration"), want: "holds 0 JoinConfigurations"},
		"Unknown":     {reason: "an emulated server would not do it", change: replace("    discovery:", "    dryRun: true\n    discovery:"), want: `unknown field "dryRun"`},
		"WrongType":   {reason: "names are text", change: replace("      name: gpu-7f3k2", "      name: [a]"), want: `"nodeRegistration.name"`},
		"BadToken":    {reason: "an unusable token", change: replace("abcdef.0123456789abcdef", "sesame"), want: "six characters of [a-z0-9]"},
		"BadLabels":   {reason: "the kubelet would not start", change: replace("vcluster.com/node-type=h100-8x", "gpu"), want: `holds "gpu", which is not key=value`},
		"BadEndpoint": {reason: "read values are checked like built ones", change: replace("10.0.0.1:6443", "10.0.0.1"), want: "is not host:port"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseUserData([]byte(tc.change(exampleUserData)))
			if tc.is != nil {
				if !errors.Is(err, tc.is) {
					t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.is)
				}
				return
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: error %v does not say %q", tc.reason, err, tc.want)
				}
				if err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "0123456789abcdef")) {
					t.Errorf("%s: the error shows the token: %v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(exampleJoin(t), got, compareTokens); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzParseUserData looks for input that makes it panic, and for joins that do not survive being written again.
func FuzzParseUserData(f *testing.F) {
	f.Add([]byte(exampleUserData))
	f.Add([]byte("#cloud-config\nruncmd: [kubeadm join --config a]\nwrite_files: [{path: a, content: 'kind: JoinConfiguration'}]\n"))
	f.Add([]byte("#cloud-config\nruncmd: [[kubeadm, join, --config]]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := ParseUserData(data)
		if err != nil {
			return
		}
		again, err := UserData(j)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		reread, err := ParseUserData(again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		j.Labels = SelfSettableLabels(j.Labels)
		if diff := cmp.Diff(j, reread, compareTokens, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("-first +second:\n%s", diff)
		}
	})
}

// TestKubeadmAcceptsJoinConfiguration asks kubeadm itself.
func TestKubeadmAcceptsJoinConfiguration(t *testing.T) {
	kubeadm := binary(t, "kubeadm")
	data, err := UserData(exampleJoin(t))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(string) string
		ok     bool
	}{
		"Ours":  {"kubeadm is what reads it in the end", func(s string) string { return s }, true},
		"Wrong": {"the check can fail", func(s string) string { return strings.Replace(s, "taints:", "taint:", 1) }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			content, err := fileAt(writtenFiles(t, data), joinConfigurationPath)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "join.yaml")
			if err := os.WriteFile(path, []byte(tc.change(string(content))), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), kubeadm, "config", "validate", "--config", path).CombinedOutput()
			if (err == nil) != tc.ok {
				t.Errorf("%s: kubeadm says %v:\n%s", tc.reason, err, out)
			}
		})
	}
}

func writtenFiles(t *testing.T, userData []byte) []bootFile {
	t.Helper()
	var document bootDocument
	if err := yaml.Unmarshal(userData, &document); err != nil {
		t.Fatal(err)
	}
	return document.WriteFiles
}

// binary returns the path of a control plane program, and skips the test where there is none. `make test` builds
// them all, and sets KUBEBUILDER_ASSETS to where they are.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: run it with make test, which builds it and sets KUBEBUILDER_ASSETS", path)
	}
	return path
}
