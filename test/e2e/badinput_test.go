// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// What a user gets wrong ends in one clear sentence and an exit code that is not zero.
func TestBadInput(t *testing.T) {
	system.Only(t)
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	busy := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)

	missing := filepath.Join(dir, "missing.kubeconfig")
	hollow := write("hollow.kubeconfig", "apiVersion: v1\nkind: Config\n")
	down := write("down.kubeconfig",
		fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: "+
			"c, cluster: {server: 'https://%s'}}]\nusers: [{name: u, user: {token: none}}]\n", freeport.ForTest(t)))
	fleetWithTypo := write("typo.yaml", "apiVersion: sandbox.karpenter.metal3.io/v1alpha1\nkind: Fleet\nservers:\n- name: server-01\n  "+
		"label: {gpu-model: h100}\n  capacity: {cpu: '1', memory: 1Gi}\n")

	for name, tc := range map[string]struct {
		reason    string
		command   string
		arguments []string
		want      []string
	}{
		"ManagerKubeconfigMissing": {
			reason:  "a typo in the path names the path",
			command: "manager", arguments: []string{"--kubeconfig", missing},
			want: []string{missing},
		},
		"ManagerKubeconfigHollow": {
			reason:  "a file that names no cluster says so",
			command: "manager", arguments: []string{"--kubeconfig", hollow},
			want: []string{hollow},
		},
		"ManagerAPIDown": {
			reason:  "an API that is down at start is named",
			command: "manager", arguments: []string{"--kubeconfig", down, "--startup-timeout", "1s"},
			want: []string{"127.0.0.1"},
		},
		"ManagerTopologyLabels": {
			reason:  "two servers of a rack would have one name",
			command: "manager", arguments: []string{"--topology-labels=rack,rack=kubernetes.io/hostname", "--metrics-bind-address=0",
				"--health-probe-bind-address=0"},
			want: []string{`--topology-labels has "rack=kubernetes.io/hostname"`, "choose another"},
		},
		"WebhookTopologyLabels": {
			reason:  "a node has one value of a label",
			command: "webhook", arguments: []string{"--topology-labels=rack,row=rack", "--metrics-bind-address=0", "--health-probe-bind-address=0"},
			want: []string{`--topology-labels has "row=rack"`, "name one of the two"},
		},
		"ProviderKubeconfigMissing": {
			reason:  "of the provider's two kubeconfigs, the one that is missing is named",
			command: "provider", arguments: []string{"--tenant-kubeconfig", missing, "--management-kubeconfig", down, "--namespace", "a",
				"--tenant-cluster", "a", "--metrics-bind-address=0"},
			want: []string{missing},
		},
		"ProviderAPIDown": {
			reason:  "a management API that is down at start is named",
			command: "provider", arguments: []string{"--tenant-kubeconfig", down, "--management-kubeconfig", down, "--namespace", "a",
				"--tenant-cluster", "a", "--startup-timeout", "1s", "--metrics-bind-address=0"},
			want: []string{"127.0.0.1"},
		},
		"ProviderNamespaceMissing": {
			reason:  "without a namespace the provider could see other tenants",
			command: "provider", arguments: []string{"--tenant-kubeconfig", down, "--management-kubeconfig", down,
				"--metrics-bind-address=0"},
			want: []string{"--namespace"},
		},
		"WebhookKubeconfigMissing": {
			reason:  "a typo in the path names the path",
			command: "webhook", arguments: []string{"--kubeconfig", missing, "--webhook-bind-address", freeport.ForTest(t),
				"--metrics-bind-address=0", "--health-probe-bind-address=0"},
			want: []string{missing},
		},
		"WebhookCertificatesMissing": {
			reason:  "with certificates of your own, the folder that has none is named",
			command: "webhook", arguments: []string{"--kubeconfig", down, "--cert-rotation=false", "--webhook-bind-address", "127.0.0.1:" + busy},
			want: []string{"--cert-dir", "tls.crt", "--webhook-bind-address", busy},
		},
		"PageInClear": {
			reason:  "the tokens of readers are for an API server with TLS",
			command: "page", arguments: []string{"--server", "http://" + freeport.ForTest(t), "--page-bind-address=127.0.0.1:0",
				"--health-probe-bind-address=0"},
			want: []string{"--server", "https URL only"},
		},
		"UnknownFlag": {
			reason:  "a flag that does not exist is named",
			command: "manager", arguments: []string{"--kubeconfg", missing},
			want: []string{"kubeconfg"},
		},
		"FleetUnknownField": {
			reason:  "a field that does not exist would silently leave servers without labels",
			command: "sandbox", arguments: []string{"up", "--dir", filepath.Join(dir, "a"), "--fleet", fleetWithTypo},
			want: []string{fleetWithTypo, "label"},
		},
		"FleetMissing": {
			reason:  "a typo in the path names the path",
			command: "sandbox", arguments: []string{"up", "--dir", filepath.Join(dir, "b"), "--fleet", missing},
			want: []string{missing},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := binary(tc.command)
			if err != nil {
				t.Fatal(err)
			}
			// Only what hangs runs into this.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, path, tc.arguments...)
			output, err := command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || ctx.Err() != nil {
				t.Fatalf("%s: ended with %v, want an exit code that is not zero:\n%s", tc.reason, err, output)
			}
			if part := containsAll(string(output), tc.want...); part != "" {
				t.Errorf("%s: the output does not say %q:\n%s", tc.reason, part, output)
			}
			if strings.Contains(string(output), "goroutine ") || strings.Contains(string(output), "panic:") {
				t.Errorf("%s: the program panicked:\n%s", tc.reason, output)
			}
		})
	}
}
