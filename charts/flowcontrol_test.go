// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// TestFlowControl: by default the writes of a provider's account, and no other requests, have the priority level of
// providers, which has few seats and borrows none.
func TestFlowControl(t *testing.T) {
	for name, off := range map[string][]string{"PriorityLevelConfiguration": {Management}, "FlowSchema": {Tenant},
		"FlowSchema of a tenant cluster": {Tenant, "--set=target=tenant", "--set=flowControl.enabled=true"}} {
		for _, object := range render(t, off[0], append([]string{"--set=flowControl.enabled=false"}, off[1:]...)...) {
			if strings.HasPrefix(object.GetAPIVersion(), "flowcontrol.") {
				t.Errorf("%s is switched off and there: %s", name, object.GetName())
			}
		}
	}
	levels := ofKind[flowcontrolv1.PriorityLevelConfiguration](t, render(t, Management), "PriorityLevelConfiguration")
	level := levels["karpenter-metal3-providers"]
	if len(levels) != 1 || *level.Spec.Limited.BorrowingLimitPercent != 0 || *level.Spec.Limited.NominalConcurrencyShares != 5 {
		t.Fatalf("priority levels %v", levels)
	}
	schemas := ofKind[flowcontrolv1.FlowSchema](t, render(t, Tenant), "FlowSchema")
	schema := schemas["karpenter-metal3-provider."+namespace+"."+release]
	if len(schemas) != 1 || schema == nil {
		t.Fatalf("flow schemas %v", schemas)
	}
	for _, object := range []client.Object{level, schema} {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // Helm would find it
			if err := environment.Client.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
	}
	request := func(ctx context.Context, user, method, path string) (bySchema, ofLevel bool, err error) {
		config := rest.CopyConfig(environment.Config)
		// An impersonated request has the flow of the user that it acts as.
		config.Impersonate.UserName = user
		connection, err := rest.HTTPClientFor(config)
		if err != nil {
			return false, false, err
		}
		request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, strings.NewReader("{}"))
		if err != nil {
			return false, false, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := connection.Do(request)
		if err != nil {
			return false, false, err
		}
		_ = response.Body.Close() // its header says all
		return response.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == string(schema.UID),
			response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") == string(level.UID), nil
	}
	account := func(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	secrets, machines := "/api/v1/namespaces/%s/secrets", "/apis/karpenter.metal3.io/v1alpha1/namespaces/%s/machines"
	provider := account(namespace, "karpenter-metal3-provider-"+release)
	poll.Eventually(t, "the flow schema is in force", func(ctx context.Context) error {
		bySchema, ofLevel, err := request(ctx, provider, http.MethodPost, fmt.Sprintf(secrets, namespace))
		if err == nil && (!bySchema || !ofLevel) {
			err = fmt.Errorf("by the schema %t, of the level %t", bySchema, ofLevel)
		}
		return err
	})
	machine, write := fmt.Sprintf(machines, namespace)+"/m", fmt.Sprintf(secrets, namespace)
	for name, tc := range map[string]struct {
		reason, user, method, path string
		want                       bool
	}{
		"Create": {"a write", provider, http.MethodPost, fmt.Sprintf(machines, namespace), true},
		"Patch":  {"a write", provider, http.MethodPatch, machine, true},
		"Status": {"a write", provider, http.MethodPatch, machine + "/status", true},
		"Read":   {"watches last", provider, http.MethodGet, machine, false},
		"Review": {"nothing is stored", provider, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", false},
		"Manager": {"it writes for all tenants", account(namespace, "karpenter-metal3-manager"), http.MethodPost, write,
			false},
		"OtherNamespace": {"its own chart has its own", account("other", "karpenter-metal3-provider-"+release),
			http.MethodPost, write, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := request(t.Context(), tc.user, tc.method, tc.path)
			if err != nil || got != tc.want {
				t.Errorf("%s: by the schema of the provider: %t, want %t, %v", tc.reason, got, tc.want, err)
			}
		})
	}
}
