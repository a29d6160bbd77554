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
		"files": {"no secret, but where it is", "--token-file=/run/token --network-endpoint-credentials=/x",
			"--token-file=/run/token --network-endpoint-credentials=/x"},
		"bearer": {"a header", "Authorization: Bearer abcdefghij and bearer abcdefghij", "Authorization: Bearer xxxxx and xxxxx"},
		"tokens": {"of a ServiceAccount, and of a node that joins", "eyJhbGci.eyJpc3M.c2ln abcdef.0123456789abcdef", "xxxxx xxxxx"},
		"key":    {"several lines", "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb", "a\nxxxxx\nb"},
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
	})
	want := map[string]any{
		"annotations": map[string]any{"example.com/bmc-password": "xxxxx", "b": "c"},
		"list":        []any{"https://u:xxxxx@h/", 1.0, nil}, "token": "", "tokens": 3.0,
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
