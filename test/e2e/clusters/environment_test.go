// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import "testing"

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, variable, value, want string
	}{
		"AllServers": {"it says nothing of which servers there are", AllServersVariable, "all",
			`E2E_ALL_SERVERS is "all": it must be true or false`},
		"ManagementOnly": {"nodes would join another cluster than the one that is looked at", ManagementVariable, "management.kubeconfig",
			"set both E2E_MANAGEMENT_KUBECONFIG and E2E_TENANT_KUBECONFIG, or neither"},
		"Fleet": {"the servers would get an image that there is not", fleetVariable, "no-folder",
			"reading the fleet that E2E_FLEET names, open no-folder/management.yaml: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{ManagementVariable, TenantVariable, AllServersVariable, fleetVariable} {
				t.Setenv(variable, "")
			}
			t.Setenv(tc.variable, tc.value)
			if _, err := read(); err == nil || err.Error() != tc.want {
				t.Errorf("%s: got %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}
