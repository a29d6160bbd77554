// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"
)

// TestNotes: who installs the release is told when every pod of the cluster can ask the webhook.
func TestNotes(t *testing.T) {
	const open = "every pod of the cluster"
	kubeconfig := environment.Kubeconfig(t, "")
	for name, tc := range map[string]struct {
		reason string
		flags  []string
		want   bool
	}{
		"Default":     {reason: "the chart cannot know the API server's addresses and authority", want: true},
		"Certificate": {reason: "others get 403", flags: []string{"--set=webhook.clients.caConfigMap=clients"}},
		"Network":     {reason: "others get no connection", flags: []string{"--set=networkPolicy.webhookFrom[0].ipBlock.cidr=192.0.2.1/32"}},
		"NoPolicy": {reason: "it says where from, and is switched off", want: true,
			flags: []string{"--set=networkPolicy.webhookFrom[0].ipBlock.cidr=192.0.2.1/32", "--set=networkPolicy.enabled=false"}},
		"NoWebhook": {reason: "nobody can ask it", flags: []string{"--set=webhook.enabled=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, problems, err := helm(t, append([]string{"install", release, Management, "--namespace=" + namespace, "--dry-run=client",
				"--set=crds.install=false", "--kubeconfig=" + kubeconfig}, tc.flags...)...)
			_, notes, found := strings.Cut(out, "\nNOTES:\n")
			if err != nil || !found {
				t.Fatalf("%v\n%s", err, problems)
			}
			if got := strings.Contains(notes, open); got != tc.want {
				t.Errorf("%s: the notes say it %t, want %t:\n%s", tc.reason, got, tc.want, notes)
			}
		})
	}
}
