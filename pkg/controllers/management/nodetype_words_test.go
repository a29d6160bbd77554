// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestNodeTypesHaveNothingOfMetal3: all tenants read NodeTypes. Whatever Metal3 writes into the status of servers, in whichever state they
// are, none of it is there or in an event.
func TestNodeTypesHaveNothingOfMetal3(t *testing.T) {
	const marker = "https://robot:hunter2@images.example.com/os.qcow2"
	f := newFleet(t, nil)
	states := []bmov1alpha1.ProvisioningState{bmov1alpha1.StateAvailable, bmov1alpha1.StateProvisioning, bmov1alpha1.StateInspecting, marker}
	kinds := []bmov1alpha1.ErrorType{"", bmov1alpha1.RegistrationError, bmov1alpha1.ProvisioningError}
	want := v1alpha1.Capacity{}
	for _, state := range states {
		for _, kind := range kinds {
			host := f.host(fmt.Sprintf("server-%02d", want.Total))
			env.MarkTexts(host, marker)
			host.Status.Provisioning.State, host.Status.ErrorType = state, kind
			if kind == "" {
				host.Status.ErrorMessage = ""
			} else {
				host.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
			}
			if err := environment.Client.Status().Update(t.Context(), host); err != nil {
				t.Fatal(err)
			}
			switch want.Total++; {
			case kind != "":
				want.Error++
			case state == bmov1alpha1.StateAvailable:
				want.Available++
			}
		}
	}
	f.start()
	f.eventually("all servers are counted", want, v1alpha1.ReasonSynced, v1alpha1.ReasonAvailable,
		"12 servers match, 0 claimed, 8 in error, 3 not ready, 1 available")
	nodeType := &v1alpha1.NodeType{}
	if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(f.nodeType), nodeType); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(nodeType)
	if err != nil {
		t.Fatal(err)
	}
	seen := string(text)
	for len(f.events.Events) > 0 {
		seen += "\n" + <-f.events.Events
	}
	if strings.Contains(seen, "hunter2") {
		t.Errorf("a tenant reads %s", seen)
	}
}
