// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestCallers: issues says of a cluster and of a snapshot that all pods can ask the webhook.
// Commands that do not say it read nothing for it.
func TestCallers(t *testing.T) {
	const open = "callers of the webhook                  every pod of the cluster can ask the webhook, and keep it busy: "
	file := filepath.Join(t.TempDir(), "fleet.json")
	for _, tc := range []struct {
		arguments string
		asked     int
		reported  bool
	}{
		{"issues", 1, true},
		{"fleet", 0, false},
		{"hosts -o wide", 0, false},
		{"snapshot " + file, 1, false},
		{"issues --snapshot " + file, 0, true},
		{"fleet --snapshot " + file, 0, false},
	} {
		asked := 0
		management := clusterWith(t, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isDeployments := list.(*appsv1.DeploymentList); isDeployments {
					asked++
				}
				return c.List(ctx, list, options...)
			}})
		var out bytes.Buffer
		o := &options{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, management: genericclioptions.NewConfigFlags(true),
			connect: func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return management, nil }}
		if code := o.run(t.Context(), strings.Fields(tc.arguments)); code == exitError {
			t.Errorf("%s: exit code %d: %s", tc.arguments, code, &out)
		}
		if reported := strings.Contains(out.String(), open); asked != tc.asked || reported != tc.reported {
			t.Errorf("%s: asked %d times, want %d; reported %t, want %t:\n%s", tc.arguments, asked, tc.asked, reported, tc.reported, &out)
		}
	}
}

// TestCallersInBrowser: the page of a cluster says it, too.
func TestCallersInBrowser(t *testing.T) {
	management := clusterWith(t, followable)
	ctx, interrupt := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	o := &options{IOStreams: genericiooptions.IOStreams{Out: out, ErrOut: io.Discard}, management: genericclioptions.NewConfigFlags(true),
		connect: func(*genericclioptions.ConfigFlags, string) (client.WithWatch, error) { return management, nil }}
	ended := make(chan int, 1)
	go func() {
		ended <- o.run(ctx, []string{"ui"})
		out.Close()
	}()
	address, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the page says who can ask the webhook", func(context.Context) error {
		answer, err := http.Get(strings.TrimSpace(address) + "issues")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		if err == nil && !strings.Contains(string(page), "every pod of the cluster can ask the webhook") {
			err = fmt.Errorf("it is %s", page)
		}
		return err
	})
	interrupt()
	if code := <-ended; code != 0 {
		t.Errorf("interrupted, it ends with exit code %d", code)
	}
}

// clusterWith is the cluster of the fleet with a webhook that all pods can ask.
func clusterWith(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	management := cluster(funcs)
	for _, object := range env.OpenWebhook() {
		if err := management.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return management
}
