// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedact(t *testing.T) {
	for name, tc := range map[string]struct{ reason, text, want string }{
		"text": {"nothing is a secret",
			`Secret "server-01-bmc" of a/b:v1@sha256:0123 was not found`,
			`Secret "server-01-bmc" of a/b:v1@sha256:0123 was not found`},
		"URL":   {"its password", `Get "https://root:calvin@192.0.2.1/redfish": EOF`, `Get "https://root:xxxxx@192.0.2.1/redfish": EOF`},
		"query": {"a signature", "fetching https://x.example/i.qcow2?X-Sig=abc, later", "fetching https://x.example/i.qcow2?xxxxx later"},
		"plain": {"a URL without credentials", `{"url":"https://x.example:8443/i.qcow2","to":"b"}`,
			`{"url":"https://x.example:8443/i.qcow2","to":"b"}`},
		"JSON": {"two URLs in one line", `{"a":"redfish://u:p@h/1","b":"ipmi://u:q\"r@h"}`, `{"a":"redfish://u:xxxxx@h/1","b":"xxxxx"}`},
		"odd":  {"a password that no URL can have", "dial http://u:p/a@host: refused", "dial xxxxx refused"},
		"pairs": {"names of values", `password=a&x=1 --bmc-password='b' token: "c d" api_key: e`,
			`password=xxxxx&x=1 --bmc-password=xxxxx token: xxxxx api_key: xxxxx`},
		"nested": {"JSON in JSON", `{"body":"{\"password\":\"a\",\"user\":\"b\"}","Password":"a\"b"}`,
			`{"body":"{\"password\":xxxxx,\"user\":\"b\"}","Password":xxxxx}`},
		"prose": {"nothing is a secret", "the join-token was revoked, and no password helps",
			"the join-token was revoked, and no password helps"},
		"files": {"no secret, but where it is", "--token-file=/run/token --network-endpoint-credentials=/x",
			"--token-file=/run/token --network-endpoint-credentials=/x"},
		"bearer": {"a header", "Authorization: Bearer abcdefghij and bearer abcdefghij", "Authorization: Bearer xxxxx and xxxxx"},
		"tokens": {"of a ServiceAccount, and of a node that joins", "eyJhbGci.eyJpc3M.c2ln abcdef.0123456789abcdef", "xxxxx xxxxx"},
		"flag": {"a value of its own", "--password hunter2 --bmc-password 'b' --token-file /run/x",
			"--password xxxxx --bmc-password xxxxx --token-file /run/x"},
		"arguments": {"in a list", `args: ["--token", "s3cr3t-value"]`, `args: ["--token", xxxxx]`},
		"ipmitool":  {"-P", "ipmitool -H 192.0.2.1 -U admin -P hunter2 power on", "ipmitool -H 192.0.2.1 -U admin -P xxxxx power on"},
		"sshpass":   {"-p", "sshpass -p hunter2 ssh -p 22 root@x", "sshpass -p xxxxx ssh -p 22 root@x"},
		"pass": {"a short name", "bmc_pass=hunter2 pwd=hunter2 PGPASSWORD=hunter2 bypass=1",
			"bmc_pass=xxxxx pwd=xxxxx PGPASSWORD=xxxxx bypass=1"},
		"secret":     {"not the name of one", "secret: hunter2 client_secret=a secretName: b", "secret: xxxxx client_secret=xxxxx secretName: b"},
		"access key": {"secret is in the middle", "aws_secret_access_key=AKhunter2", "aws_secret_access_key=xxxxx"},
		"keys": {"of several kinds", "join-key=a license_key=b tls.key: c topology-key: d",
			"join-key=xxxxx license_key=xxxxx tls.key: xxxxx topology-key: d"},
		"client key": {"of a kubeconfig", "client-key-data: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg==", "client-key-data: xxxxx"},
		"base64":     {"a key without a name", "x LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg== y", "x xxxxx y"},
		"kubeconfig": {"no file", "kubeconfig=YXBpVmVyc2lvbjogdjEK --kubeconfig=/etc/k", "kubeconfig=xxxxx --kubeconfig=/etc/k"},
		"credentials": {"no name of a Secret", "credentials: admin:hunter2 credentials: server-01-bmc",
			"credentials: xxxxx credentials: server-01-bmc"},
		"hash":        {"of crypt", "root:$6$salt$abcdefgh bob:$y$j9T$x$y a:$2b$12$xyz", "root:xxxxx bob:xxxxx a:xxxxx"},
		"chpasswd":    {"a list", "chpasswd: {list: root:hunter2}\nb", "chpasswd xxxxx\nb"},
		"chpasswds":   {"a list of several lines", "a\n  chpasswd:\n    list: |\n      root:hunter2\nb", "a\n  chpasswd xxxxx\nb"},
		"to chpasswd": {"before it", "echo root:hunter2 | chpasswd", "echo chpasswd xxxxx"},
		"community":   {"of SNMP", "snmp community=private", "snmp community=xxxxx"},
		"CHAP":        {"of iSCSI", "CHAP secret hunter2", "CHAP secret xxxxx"},
		"basic":       {"a header without its name", "basic YWRtaW46aHVudGVyMg== and basic validation", "xxxxx and basic validation"},
		"prefixes": {"tokens that say what they are", "hf_abcdefghijklmnopqrstuvwxyz012345 ghp_abcdefghijklmnopqrstuvwxyz0123456789 " +
			"gho_abcdefghijklmnop github_pat_11ABCDEFG_abc nvapi-abcdefghijklmnop glpat-abcdefghijklmnop xoxb-123456789012-abc AKIAIOSFODNN7EXAMPLE",
			"xxxxx xxxxx xxxxx xxxxx xxxxx xxxxx xxxxx xxxxx"},
		"user data": {"of a node that joins", `"#cloud-config\nruncmd: [kubeadm join --token abcdef.0123456789abcdef]`,
			`"#cloud-config\nruncmd: [kubeadm join --token xxxxx]`},
		"key": {"several lines", "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb", "a\nxxxxx\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Redact(tc.text); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestRedactValue(t *testing.T) {
	got := RedactValue(map[string]any{
		"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/bmc-password": "a", "b": "c"},
		"list":        []any{"https://u:p@h/", 1.0, nil}, "token": "", "tokens": 3.0,
		"args": []any{"--password", "a", "--token", "b", "--port", "1"}, "env": []any{map[string]any{"name": "NGC_API_KEY", "value": "c"}},
		"properties": map[string]any{"example.com/join-key": "d", "example.com/registry-secret": "e"},
	})
	want := map[string]any{
		"annotations": map[string]any{"example.com/bmc-password": "xxxxx", "b": "c"},
		"list":        []any{"https://u:xxxxx@h/", 1.0, nil}, "token": "", "tokens": 3.0,
		"args":       []any{"--password", "xxxxx", "--token", "xxxxx", "--port", "1"},
		"env":        []any{map[string]any{"name": "NGC_API_KEY", "value": "xxxxx"}},
		"properties": map[string]any{"example.com/join-key": "xxxxx", "example.com/registry-secret": "xxxxx"},
	}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPublicURL: a password is blanked, whatever is in it.
func TestPublicURL(t *testing.T) {
	for _, special := range "/#?@%:&= \"'\\[]{}|^~+,;!$*()<>é" {
		for _, before := range []string{"", "12", "ab"} {
			text := "https://root:" + before + string(special) + "calvin@192.0.2.1/images/x.raw"
			if got := PublicURL(text); strings.Contains(got, "calvin") {
				t.Errorf("PublicURL(%q) = %q", text, got)
			}
		}
	}
	for _, text := range []string{
		"https://192.0.2.1:8443/x.raw#part", "oci://registry.example:5000/os@sha256:0123", "redfish-virtualmedia+http://192.0.2.1:8000/redfish/v1/Systems/1",
		"http://images/mail@example.com.raw", "local/image", "",
	} {
		if got := PublicURL(text); got != text {
			t.Errorf("PublicURL(%q) = %q, and there is nothing to blank", text, got)
		}
	}
}
