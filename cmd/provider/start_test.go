// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestBadStart(t *testing.T) {
	namespace := environment.Namespace(t)
	unreachable := kubeconfigFile(t, &rest.Config{Host: "http://127.0.0.1:1"})
	admin := kubeconfigFile(t, environment.Config)
	for name, tc := range map[string]struct {
		reason string
		change func(*options)
		want   []string
	}{
		"no flags": {
			reason: "all that is missing must be said at once",
			change: func(o *options) { *o = *defaultOptions() },
			want:   []string{"--namespace is empty", "--tenant-cluster is empty"},
		},
		"no such file": {
			reason: "it must name the file, the cluster and the flag",
			change: func(o *options) { o.management.Kubeconfig = "/does/not/exist" },
			want:   []string{"/does/not/exist", "management cluster", "--management-kubeconfig"},
		},
		"management cluster down": {
			reason: "it must give up after the timeout, and name the cluster that does not answer",
			change: func(o *options) {
				o.management.Kubeconfig, o.process.StartupTimeout = unreachable, 100*time.Millisecond
			},
			want: []string{"management cluster", "http://127.0.0.1:1", "did not answer within 100ms"},
		},
		"wrong label": {
			reason: "core would let any server pass",
			change: func(o *options) { o.topologyLabels = []string{"gpu model"} },
			want:   []string{"--topology-labels", "gpu model"},
		},
		"label of Karpenter": {
			reason: "Karpenter would refuse to plan with it",
			change: func(o *options) { o.topologyLabels = []string{"rack", "rack=karpenter.sh/rack"} },
			want:   []string{`--topology-labels has "rack=karpenter.sh/rack"`, "choose another"},
		},
		"configuration of a scheduler": {
			reason: "Karpenter's document is another, and its own error does not say what has it",
			change: func(o *options) {
				if err := o.karpenter.flags.Set(schedulerConfig, "kind: KubeSchedulerConfiguration"); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"--scheduler-config (or SCHEDULER_CONFIG)", `unknown field "kind"`, "podTopologySpread"},
		},
		"no such controllers": {
			reason: "a typing error must not turn half of the program off",
			change: func(o *options) { o.controllers = []string{"dra", "karpentr"} },
			want:   []string{"--controllers", `"karpentr"`, "karpenter and dra"},
		},
		"no controllers": {
			reason: "it would do nothing, for ever",
			change: func(o *options) { o.controllers = nil },
			want:   []string{"--controllers is empty"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := optionsFor(namespace, admin)
			tc.change(o)
			err := o.run(context.Background())
			if err == nil {
				t.Fatalf("it runs: %s", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q: %s", err, want, tc.reason)
				}
			}
		})
	}
}
