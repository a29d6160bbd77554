// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	exampleKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINQIfoqiuwIPHc4eWVdsm2q/kkDtlBVmoL6absE/h+su me1@laptop"
	exampleKey2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAION4/s6y1ukIIrklX5cs3ftosn0A/pEMaYz+KkmoMGUy me2@laptop"
)

var (
	// joinCommands are what a server runs that joins by kubeadm.
	joinCommands = []string{"systemctl enable --now containerd", "containerd config dump", "systemctl enable kubelet",
		"kubeadm join --config /etc/kubernetes/kubeadm-join.yaml"}
	joinHost = map[string]any{"hostname": "gpu-7f3k2", "preserve_hostname": false, "manage_etc_hosts": "localhost"}
)

func mustJoin(t testing.TB, j Join) []byte {
	t.Helper()
	join, err := JoinUserData(j)
	if err != nil {
		t.Fatal(err)
	}
	return join
}

// and returns a copy of the configuration with more keys.
func and(config map[string]any, more map[string]any) map[string]any {
	sum := map[string]any{}
	for _, keys := range []map[string]any{config, more} {
		for key, value := range keys {
			sum[key] = value
		}
	}
	return sum
}

// TestNTPServers has a real cloud-init merge time servers with what a user has written.
func TestNTPServers(t *testing.T) {
	ours := map[string]any{"ntp": map[string]any{"servers": []any{"192.0.2.123", "ntp.example.com"}}}
	const own = "ntp:\n  servers: [mine.example.com]\n"
	cases := map[string]struct {
		reason, user string
		keys         []string
		want         map[string]any
	}{
		"Alone": {"they need no document", "", nil, ours},
		"Beside": {"a document without an ntp", "#cloud-config\npackages: [jq]\n", nil,
			and(ours, map[string]any{"packages": []any{"jq"}})},
		"Keys": {"SSH keys are added in the same way", "", []string{exampleKey},
			and(ours, map[string]any{"ssh_authorized_keys": []any{exampleKey}})},
		"Own": {"the servers of the document are kept alone", "#cloud-config\n" + own, nil,
			map[string]any{"ntp": map[string]any{"servers": []any{"mine.example.com"}}}},
		"Off": {"a document that switches it off does", "#cloud-config\nntp: {enabled: false}\n", nil,
			map[string]any{"ntp": and(ours["ntp"].(map[string]any),
				map[string]any{"enabled": false})}},
		"Script": {"a script can be all there is", "#!/bin/sh\ntrue\n", nil, ours},
	}
	names, servers := slices.Sorted(maps.Keys(cases)), []toBoot{}
	for _, name := range names {
		userData, err := UserData([]byte(cases[name].user), cases[name].keys, []string{"192.0.2.123", "ntp.example.com"}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, toBoot{newNode(t), userData})
		if !strings.HasPrefix(string(userData), "#cloud-config") {
			continue
		}
		out, err := cloudInit(t, "schema", "--config-file", file(t, "user-data", userData))
		if err != nil || !strings.Contains(out, "Valid cloud-config") {
			t.Errorf("%s: cloud-init does not take this (%v):\n%s\n%s", name, err, out, userData)
		}
	}
	for i, server := range bootAll(t, servers...) {
		tc := cases[names[i]]
		if diff := cmp.Diff(tc.want, server.Config); diff != "" || len(server.Warnings) > 0 {
			t.Errorf("%s: %s: warnings %q, cloud-config (-want +got):\n%s", names[i], tc.reason, server.Warnings, diff)
		}
	}
}

// TestUserData has a real cloud-init read each user data and run its scripts.
func TestUserData(t *testing.T) {
	const ownMIME = "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n" +
		"--b\nContent-Type: text/cloud-config\n\n#cloud-config\nruncmd: [curl one]\n\n" +
		"--b\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\nIyEvYmluL3NoCmN1cmwgc2NyaXB0Cg==\n\n--b--\n"
	cases := map[string]struct {
		reason string
		user   string
		keys   []string
		join   bool
		config map[string]any
		runs   []string
	}{
		"Join": {"the join alone", "", nil, true, joinHost, joinCommands},
		"Lists": {
			"lists of the user's are kept, ours are added, and the user's commands run first",
			"#cloud-config\nruncmd: [curl one]\npackages: [jq]\nssh_authorized_keys: [" + exampleKey + "]\n", []string{exampleKey2}, true,
			and(joinHost, map[string]any{"runcmd": []any{"curl one"}, "packages": []any{"jq"},
				"ssh_authorized_keys": []any{exampleKey, exampleKey2}}),
			slices.Concat([]string{"curl one"}, joinCommands),
		},
		"Hostname": {
			"a hostname that the user gives is kept", "#cloud-config\nhostname: mine\n", nil, true,
			and(joinHost, map[string]any{"hostname": "mine"}), joinCommands,
		},
		"MergeHow": {
			"how the user's document is merged is not how ours are",
			"#cloud-config\nmerge_how: dict(replace)+list(replace)\nruncmd: [curl one]\n", []string{exampleKey}, true,
			and(joinHost, map[string]any{"runcmd": []any{"curl one"}, "ssh_authorized_keys": []any{exampleKey}}),
			slices.Concat([]string{"curl one"}, joinCommands),
		},
		"NoValue": {
			"a key without a value does not take the join away", "\n\n#cloud-config\nruncmd:\nwrite_files: ~\n", nil, true,
			and(joinHost, map[string]any{"runcmd": nil, "write_files": nil}), joinCommands,
		},
		"Header": {"a header alone is an empty document", "#cloud-config\n# nothing yet\n", []string{exampleKey}, true,
			and(joinHost, map[string]any{"ssh_authorized_keys": []any{exampleKey}}), joinCommands},
		"StandAlone": {"a Machine without a tenant joins nothing", "#cloud-config\nruncmd: [curl one]\n", []string{exampleKey}, false,
			map[string]any{"runcmd": []any{"curl one"}, "ssh_authorized_keys": []any{exampleKey}}, []string{"curl one"}},
		"KeysOnly": {"keys need no document", "", []string{exampleKey}, false, map[string]any{"ssh_authorized_keys": []any{exampleKey}}, nil},
		"Script": {"a script runs before the join", "#!/bin/sh\ncurl one\n", []string{exampleKey}, true,
			and(joinHost, map[string]any{"ssh_authorized_keys": []any{exampleKey}}), slices.Concat([]string{"curl one"}, joinCommands)},
		"Failing": {"a script that fails does not keep the server from joining", "#!/bin/sh\ncurl one\nexit 1\n", nil, true, joinHost,
			slices.Concat([]string{"curl one"}, joinCommands)},
		"Jinja": {
			"rendered on the server, where it can make a key without a value",
			"## template: jinja\n#cloud-config\nhostname: {{ ds.meta_data.name }}\nruncmd:\n", nil, true,
			and(joinHost, map[string]any{"hostname": "server-1", "runcmd": nil}), joinCommands,
		},
		"MIME": {
			"a message of several parts is a part", ownMIME, []string{exampleKey}, true,
			and(joinHost, map[string]any{"runcmd": []any{"curl one"}, "ssh_authorized_keys": []any{exampleKey}}),
			slices.Concat([]string{"curl script", "curl one"}, joinCommands),
		},
		"Letters": {"cloud-init reads the message as ASCII", "#cloud-config\nfinal_message: grüße 漢字\n", nil, true,
			and(joinHost, map[string]any{"final_message": "grüße 漢字"}), joinCommands},
		"Alias": {"an alias in a document stays what it is", "#cloud-config\nx: &a [" + exampleKey + "]\nssh_authorized_keys: *a\n",
			[]string{exampleKey2}, false, map[string]any{"x": []any{exampleKey}, "ssh_authorized_keys": []any{exampleKey, exampleKey2}}, nil},
		"Loose": {
			"what cloud-init takes is left as it is", "#cloud-config\nruncmd: [[sleep, 5]]\nwrite_files: [{path: 1, permissions: 0644, content: " +
				"!!binary aGVsbG8=}]\nsudo: no\n", nil, false,
			map[string]any{"runcmd": []any{[]any{"sleep", 5.}},
				"write_files": []any{map[string]any{"path": 1., "permissions": 420., "content": "hello"}}, "sudo": false}, []string{"sleep 5"},
		},
	}
	names, servers := slices.Sorted(maps.Keys(cases)), []toBoot{}
	for _, name := range names {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			var join []byte
			if tc.join {
				join = mustJoin(t, exampleJoin(t))
			}
			got, err := UserData([]byte(tc.user), tc.keys, nil, nil, join)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			again, err := UserData([]byte(tc.user), tc.keys, nil, nil, join)
			if err != nil || !bytes.Equal(got, again) {
				t.Errorf("equal documents must give equal bytes (%v)", err)
			}
			servers = append(servers, toBoot{userData: got})
		})
	}
	if t.Failed() {
		return
	}
	for i := range servers {
		servers[i].image = newNode(t)
	}
	for i, server := range bootAll(t, servers...) {
		name, tc := names[i], cases[names[i]]
		t.Run("boot "+name, func(t *testing.T) {
			if diff := cmp.Diff(tc.config, server.Config); diff != "" {
				t.Errorf("%s: the cloud-config (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.runs, server.runs); diff != "" {
				t.Errorf("%s: the commands (-want +got):\n%s", tc.reason, diff)
			}
			failed := name == "Failing" && len(server.Warnings) > 0
			if len(server.Warnings) > 0 && !failed {
				t.Errorf("%s: cloud-init warns: %q", tc.reason, server.Warnings)
			}
		})
	}
}

// TestJoinByIPv6: an IPv6 address is in brackets everywhere, and the server forwards IPv6, without which kubeadm refuses to join.
func TestJoinByIPv6(t *testing.T) {
	const endpoint = "[fd00::1]:6443"
	byKubeadm, byVCluster := exampleJoin(t), vclusterJoin(t)
	byKubeadm.APIServerEndpoint, byVCluster.APIServerEndpoint = endpoint, endpoint
	server := boot(t, mustJoin(t, byKubeadm))
	var configuration joinConfiguration
	if err := yaml.Unmarshal([]byte(server.read(joinConfigurationPath)), &configuration); err != nil {
		t.Fatal(err)
	}
	if got := configuration.Discovery.BootstrapToken.APIServerEndpoint; got != endpoint {
		t.Errorf("kubeadm joins %q, want %q", got, endpoint)
	}
	want := slices.Concat([]string{"sysctl -w net.ipv6.conf.all.forwarding=1", "sysctl -w net.ipv6.conf.default.forwarding=1"}, joinCommands)
	if diff := cmp.Diff(want, server.runs); diff != "" {
		t.Errorf("the commands (-want +got):\n%s", diff)
	}
	if script := string(mustJoin(t, byVCluster)); !strings.Contains(script, `url = "https://[fd00::1]:6443/node/join?token=`) {
		t.Errorf("the script of the vCluster is fetched from elsewhere:\n%s", script)
	}
}

// Files of the user's where the join has its own, and links in their place, change nothing.
func TestUserFilesDoNotChangeTheJoin(t *testing.T) {
	server := boot(t, mustJoin(t, exampleJoin(t)))
	want := server.read(joinConfigurationPath)
	image := newNode(t)
	image.write(joinConfigurationPath, "kind: Other\n")
	image.write(prepareScriptPath, "#!/bin/sh\nexit 1\n")
	again := bootAll(t, toBoot{image, mustJoin(t, exampleJoin(t))})[0]
	if got := again.read(joinConfigurationPath); got != want || !strings.Contains(got, exampleToken) {
		t.Errorf("the join is another one:\n%s", got)
	}
	if diff := cmp.Diff(joinCommands, again.runs); diff != "" {
		t.Errorf("the commands (-want +got):\n%s", diff)
	}
}

func TestUserDataRefuses(t *testing.T) {
	cases := map[string]struct {
		reason, user, want string
	}{
		"NoHeader": {"cloud-init would take it for text", "packages: [secret]\n",
			`is not user data for cloud-init: its first line must be "#cloud-config"`},
		"JSON": {"cloud-init wants the header", "{}", "this is JSON: put the header above it"},
		"Ignition": {"an image that reads it has no cloud-init", `{"ignition":{"version":"3.4.0"}}`,
			"is Ignition, and servers join by cloud-init"},
		"Butane":  {"as Ignition", "variant: flatcar\nversion: 1.0.0\n", "is Butane, and servers join by cloud-init"},
		"BadYAML": {"the line, and nothing of what is in it", "#cloud-config\na: 1\nsecret: [\n", "is not valid YAML at line"},
		"List":    {"the document is a mapping", "#cloud-config\n- secret\n", "the document must be a mapping"},
		"TwoKeys": {"cloud-init would drop the first", "#cloud-config\nruncmd: [a]\nruncmd: [secret]\n",
			"is not cloud-config at line 3: its keys must be words, and each must be there once"},
		"TwoDocs":    {"cloud-init would fail", "#cloud-config\na: 1\n---\nb: secret\n", "more than one YAML document"},
		"TextRunCmd": {"cloud-init would run nothing", "#cloud-config\nruncmd: secret\n", "has a runcmd in line 2 that is not a list"},
		"MapFiles": {"cloud-init would write nothing", "#cloud-config\nwrite_files: {path: secret}\n",
			"has a write_files in line 2 that is not a list"},
		"NoKeys": {"cloud-init would not add the others", "#cloud-config\nssh_authorized_keys:\n",
			"has no value for ssh_authorized_keys in line 2"},
		"MIMEYAML": {"a part is looked at like a document", "MIME-Version: 1.0\nContent-Type: multipart/mixed; " +
			"boundary=b\n\n--b\n\n#!/bin/sh\n--b\n\n#cloud-config\nsecret: [\n--b--\n", "is a MIME message whose part 2 is not valid YAML at line"},
		"MIMEBase64": {"decoded", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Transfer-Encoding: " +
			"base64\n\nI2Nsb3VkLWNvbmZpZwpydW5jbWQ6IGEK\n--b--\n", "whose part 1 has a runcmd in line 2"},
		"MIMEEnd": {"the rest is missing", "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n#!/bin/sh\n",
			"whose part 1 cannot be read: check its encoding, and end the message with its boundary"},
		"MIMEOne":    {"a message without parts", "MIME-Version: 1.0\nContent-Type: text/plain\n\nsecret\n", "is a MIME message without parts"},
		"MIMEHeader": {"not a message", "MIME-Version: 1.0\nsecret\n", "whose header cannot be read"},
		"Large": {"Metal3 could not store it", "#cloud-config\nx: " + strings.Repeat("a", MaxDocumentBytes) + "\n",
			"Metal3 takes at most 1048576"},
		"NearlyLarge": {"with the join it is too large", "#cloud-config\nx: " + strings.Repeat("a", MaxDocumentBytes-100) + "\n",
			"Metal3 takes at most 1048576"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := UserData([]byte(tc.user), []string{exampleKey}, nil, nil, mustJoin(t, exampleJoin(t)))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: error %v does not say %q", tc.reason, err, tc.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error repeats the document: %v", tc.reason, err)
			}
		})
	}
	_, err := UserData([]byte("#!/bin/sh\n"), nil, nil, nil, []byte("#cloud-config\n- a\n"))
	if err == nil || !strings.Contains(err.Error(), "cannot be combined with the user data of spec.bootstrap.dataSecretName, which is not "+
		"cloud-config") {
		t.Errorf("a user can write the other Secret: %v", err)
	}
}

func TestCheckUserDataAccepts(t *testing.T) {
	for _, document := range []string{
		"", "\n \n", "#!/bin/sh\n", "#include https://example.com/a\n", "#include-once\nhttps://example.com/a\n", "#cloud-boothook\n#!/bin/sh\n",
		"#cloud-config-archive\n- echo\n", "#cloud-config-jsonp\n[]\n", "## template: jinja\n#cloud-config\n{% if %}\n",
		"#cloud-config\r\na: 1\r\n",
	} {
		if err := CheckUserData([]byte(document)); err != nil {
			t.Errorf("%q: %v", document, err)
		}
	}
}

func TestJoinUserData(t *testing.T) {
	j := exampleJoin(t)
	j.Labels["node-role.kubernetes.io/gpu"] = "" // a kubelet asked to set it would not start
	golden(t, "kubeadm.txt", mustJoin(t, j))
}

func TestVClusterJoin(t *testing.T) {
	j := vclusterJoin(t)
	j.CACertificates = append([]byte("text between certificates\n"+JoinScriptEnd+"\nrm -rf /\n"), j.CACertificates...)
	userData, err := UserData([]byte("#cloud-config\nruncmd: [curl one]\n"), nil, nil, nil, mustJoin(t, j))
	if err != nil {
		t.Fatal(err)
	}
	image := newNode(t)
	image.program("curl", "[ $# -eq 1 ] || while [ $# -gt 1 ]; do if [ \"$1\" = --output ]; then echo joined >\"$2\"; fi; shift; done")
	image.program("joined", "")
	server := bootAll(t, toBoot{image, userData})[0]
	if len(server.runs) != 3 || server.runs[0] != "curl one" ||
		!strings.Contains(server.runs[1], "--config /etc/kubernetes/vcluster-join.curl") || server.runs[2] != "joined" {
		t.Errorf("it runs %q", server.runs)
	}
	const kubelet = "KUBELET_EXTRA_ARGS='--provider-id=metal3://hosts/server-1/gpu-7f3k2 " +
		"--node-labels=karpenter.metal3.io/node-type=h100-8x,node.kubernetes.io/instance-type=h100-8x " +
		"--register-with-taints=karpenter.sh/unregistered=:NoExecute,team=a:NoSchedule --kube-reserved=cpu=100m,memory=1Gi --max-pods=200'\n"
	for _, path := range []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet", "/etc/vcluster/vcluster-flags.env"} {
		if diff := cmp.Diff(kubelet, server.read(path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if got := server.read("/etc/systemd/system/kubelet.service.d/20-karpenter-metal3.conf"); got !=
		"[Service]\nEnvironmentFile=-/etc/default/kubelet\n" {
		t.Errorf("a kubelet.service that reads no file of ours starts the kubelet without a provider ID; the drop-in is\n%s", got)
	}
	if got := server.read(vclusterCAPath); strings.Contains(got, "text") || !strings.Contains(got, "BEGIN CERTIFICATE") {
		t.Errorf("the CA certificates are\n%s", got)
	}
}

// TestKubeadmAcceptsJoinConfiguration asks kubeadm itself.
func TestKubeadmAcceptsJoinConfiguration(t *testing.T) {
	kubeadm := binary(t, "kubeadm")
	configuration := boot(t, mustJoin(t, exampleJoin(t))).read(joinConfigurationPath)
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
			path := file(t, "join.yaml", []byte(tc.change(configuration)))
			out, err := exec.CommandContext(t.Context(), kubeadm, "config", "validate", "--config", path).CombinedOutput()
			if (err == nil) != tc.ok {
				t.Errorf("%s: kubeadm says %v:\n%s", tc.reason, err, out)
			}
		})
	}
}

// FuzzUserData looks for documents that make it panic, or with which the join is lost.
func FuzzUserData(f *testing.F) {
	f.Add([]byte("#cloud-config\nruncmd: [[a, 1], b]\nx: |2\n   y\n"))
	f.Add([]byte("\n#cloud-config\n? [a]\n: b\n"))
	f.Add([]byte("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n#!/bin/sh\n--b--\n"))
	f.Fuzz(func(t *testing.T, document []byte) {
		join := mustJoin(t, exampleJoin(t))
		userData, err := UserData(document, []string{exampleKey}, nil, nil, join)
		if err != nil {
			return
		}
		_, script, _ := bytes.Cut(join, []byte("#!/bin/sh"))
		script, _, _ = bytes.Cut(script, []byte("\r\n--"))
		if !bytes.Contains(userData, script) {
			t.Fatalf("the join is not in it:\n%s", userData)
		}
		if err := CheckUserData(userData); err != nil {
			t.Fatalf("what was built cannot be read: %v\n%s", err, userData)
		}
	})
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

// A document without content is still what the user has set, and the server is installed with it.
func TestUserDataWithoutContent(t *testing.T) {
	const document = "#cloud-config"
	userData, err := UserData([]byte(document), nil, nil, nil, nil)
	if err != nil || string(userData) != document {
		t.Errorf("user data is %q (%v), want %q", userData, err, document)
	}
}
