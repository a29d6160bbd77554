// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLinger(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, end := context.WithCancel(t.Context())
	lasting, stop := linger(ctx, clk, time.Minute)
	defer stop()
	end()
	for !clk.HasWaiters() {
		if lasting.Err() != nil {
			t.Fatal("it ended at once")
		}
	}
	clk.Step(time.Minute)
	<-lasting.Done()

	forever, stop := linger(t.Context(), clk, time.Minute)
	stop()
	<-forever.Done()
}

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*options)
		want   []string
	}{
		"Defaults": {reason: "they go together", change: func(*options) {}},
		"Address":  {reason: "it has a port", change: func(o *options) { o.address = "127.0.0.1" }, want: []string{"--webhook-bind-address"}},
		"NoFiles":  {reason: "nobody makes any", change: func(o *options) { o.certRotation, o.certDir = false, "/nowhere" }, want: []string{"--cert-dir", "/nowhere"}},
		"Rotation": {reason: "each flag is named", change: func(o *options) { o.secret, o.settle = "", 0 }, want: []string{"--cert-secret is empty", "KARPENTER_METAL3_CERT_SECRET", "--ca-settle is 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions()
			o.addFlags(&cliflag.NamedFlagSets{})
			o.address, o.metricsAddress, o.healthAddress = "127.0.0.1:1", "0", "0"
			if name != "Address" {
				o.address = "127.0.0.1:0"
			}
			tc.change(o)
			_, _, err := o.complete()
			text := ""
			if err != nil {
				text = err.Error()
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q does not say %s", tc.reason, text, want)
				}
			}
		})
	}
	o := newOptions()
	o.address, o.metricsAddress, o.healthAddress = "127.0.0.1:45999", "0", "0"
	if _, port, err := o.complete(); err != nil || port != 45999 || len(o.certNames) != 2 || o.certNames[0] != "karpenter-metal3-webhook.default.svc" {
		t.Errorf("got port %d, names %v, %v", port, o.certNames, err)
	}
}

func TestTrimHost(t *testing.T) {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Annotations:   map[string]string{bmov1alpha1.HardwareDetailsAnnotation: "x", "keep": "y"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
	}}
	host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{Hostname: "h", CPU: bmov1alpha1.CPU{Arch: "aarch64", Count: 8, Flags: []string{"x"}}, RAMMebibytes: 1024,
		Storage: []bmov1alpha1.Storage{{Name: "/dev/sda", SizeBytes: 7}}}
	if _, err := trimHost(host); err != nil {
		t.Fatal(err)
	}
	size := &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "aarch64", Count: 8}, RAMMebibytes: 1024, Storage: []bmov1alpha1.Storage{{SizeBytes: 7}}}
	if !reflect.DeepEqual(host.Status.HardwareDetails, size) || len(host.ManagedFields) > 0 || len(host.Annotations) != 1 {
		t.Errorf("left is %+v", host)
	}
	if tombstone, err := trimHost(toolscache.DeletedFinalStateUnknown{Key: "k"}); err != nil || tombstone == nil {
		t.Errorf("a tombstone: %v, %v", tombstone, err)
	}
}
