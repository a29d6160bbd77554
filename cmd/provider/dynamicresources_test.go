// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestKarpenterDefaults: two of core's flags have another default here.
func TestKarpenterDefaults(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, environment, value string
		flag, flagValue            string
		ignored, legacy            bool
	}{
		"Default": {reason: "claims are what GPUs are asked for by more and more, and no server is free to replace a broken one first",
			legacy: true},
		"Flag":   {reason: "an explicitly set flag wins", flag: ignoreDRA, flagValue: "true", ignored: true, legacy: true},
		"FlagOn": {reason: "and on", flag: ignoreDRA, flagValue: "false", legacy: true},
		"Environment": {reason: "the environment is as good as the flag", environment: ignoreDRAEnvironment, value: "true", ignored: true,
			legacy: true},
		"Repair":      {reason: "a fleet with spare servers can have core's newer repair", flag: legacyRepair, flagValue: "false"},
		"RepairByEnv": {reason: "by the environment, too", environment: legacyRepairEnvironment, value: "false"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.environment != "" {
				t.Setenv(tc.environment, tc.value)
			}
			o := defaultOptions()
			if tc.flag != "" {
				if err := o.karpenter.flags.Set(tc.flag, tc.flagValue); err != nil {
					t.Fatal(err)
				}
			}
			options, err := o.karpenter.options(o.gates)
			if err != nil {
				t.Fatal(err)
			}
			if options.LegacyNodeRepair != tc.legacy {
				t.Errorf("%s: the former repair is on: %v, want %v", tc.reason, options.LegacyNodeRepair, tc.legacy)
			}
			if options.IgnoreDRARequests != tc.ignored {
				t.Errorf("%s: claims are ignored: %v, want %v", tc.reason, options.IgnoreDRARequests, tc.ignored)
			}
		})
	}
}

func TestTenantWithoutResourceClaims(t *testing.T) {
	all := []string{"ResourceClaim", "ResourceSlice", "DeviceClass"}
	for name, tc := range map[string]struct {
		reason  string
		status  int
		kinds   []string
		ignored bool
		fails   bool
	}{
		"All":       {"they are looked at", http.StatusOK, all, false, false},
		"OldServer": {"core would wait for them and give up, and with it everything else", http.StatusNotFound, nil, true, false},
		"SomeKinds": {"core needs all of them", http.StatusOK, all[:2], true, false},
		"Broken":    {"no answer is not a no", http.StatusInternalServerError, nil, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.status)
				list := metav1.APIResourceList{GroupVersion: resourcev1.SchemeGroupVersion.String()}
				for _, kind := range tc.kinds {
					list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind})
				}
				_ = json.NewEncoder(w).Encode(list)
			}))
			t.Cleanup(server.Close)
			o := defaultOptions()
			karpenter, err := o.karpenter.options(o.gates)
			if err != nil {
				t.Fatal(err)
			}
			err = o.checkDynamicResources(t.Context(), &rest.Config{Host: server.URL}, karpenter)
			if (err != nil) != tc.fails || karpenter.IgnoreDRARequests != tc.ignored {
				t.Errorf("%s: claims are ignored: %v, want %v; error %v", tc.reason, karpenter.IgnoreDRARequests, tc.ignored, err)
			}
		})
	}
}
