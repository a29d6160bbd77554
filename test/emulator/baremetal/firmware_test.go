// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/deployagent"
)

// The parameters that Metal3's Ironic puts on a medium, from a server whose certificate is unknown.
func TestParameters(t *testing.T) {
	const line = "linux /vmlinuz nofb ipa-insecure=1 ipa-api-url=https://ironic:6385 ipa-agent-token=secret " +
		"ipa-inspection-callback-url=https://ironic:6385/v1/continue_inspection systemd.journald.forward_to_console=yes\n"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(line)) }))
	defer server.Close()
	got := deployagent.Parameters{IronicURL: "http://127.0.0.1:6385"}
	if err := readParameters(t.Context(), server.URL, &got); err != nil {
		t.Fatal(err)
	}
	want := deployagent.Parameters{
		IronicURL: "https://ironic:6385", Token: "secret", InspectionURL: "https://ironic:6385/v1/continue_inspection", Insecure: true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}
