// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
)

func TestChosenHost(t *testing.T) {
	host := HostReference{Namespace: "metal3", Name: "h1", UID: "1"}
	machine := &Machine{}
	if _, found := machine.Host(); found || machine.HasHost() {
		t.Error("a new Machine has none")
	}
	machine.SetChosenHost(host, "gpu.8x")
	if got, found := machine.Host(); !found || got != host || !machine.HasHost() {
		t.Errorf("got %v, %t: it may be claimed", got, found)
	}
	other := HostReference{Namespace: "metal3", Name: "h2", UID: "2"}
	machine.Status.HostRef = &other
	if got, _ := machine.Host(); got != other {
		t.Errorf("got %v, want what the status says", got)
	}
}

// TestChosenHostValues: a value that is no choice is an error that names the object, the key and the value, and no host.
func TestChosenHostValues(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, text string
		want         *ChosenHost
		wantErr      string
	}{
		"None": {reason: "no host was chosen"},
		"Written": {
			reason: "as the manager writes it", text: `{"namespace":"metal3","name":"h1","uid":"1","nodeType":"gpu.8x"}`,
			want: &ChosenHost{HostReference: HostReference{Namespace: "metal3", Name: "h1", UID: "1"}, NodeType: "gpu.8x"},
		},
		"NewerVersion": {
			reason: "a provider may be older than the manager", text: `{"namespace":"a","name":"b","uid":"c","nodeType":"d","more":{}}`,
			want: &ChosenHost{HostReference: HostReference{Namespace: "a", Name: "b", UID: "c"}, NodeType: "d"},
		},
		"Cut":       {reason: "which host is unknown", text: "metal3/h1", wantErr: `"metal3/h1"`},
		"NoUID":     {reason: "another host may have had the name", text: `{"namespace":"a","name":"b","nodeType":"d"}`, wantErr: "uid"},
		"OtherType": {reason: "it would be read as empty", text: `{"namespace":1}`, wantErr: "namespace"},
		"Null":      {reason: "JSON without a choice", text: "null", wantErr: "required"},
		"Two":       {reason: "which of the two is unknown", text: `{}{}`, wantErr: "names no host"},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &Machine{}
			machine.Namespace, machine.Name = "acme", "gpu-1"
			machine.Annotations = map[string]string{ChosenHostAnnotationKey: tc.text}
			got, err := machine.ChosenHost()
			if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
			}
			if tc.wantErr == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("%s: no error", tc.reason)
			}
			for _, part := range []string{tc.wantErr, ChosenHostAnnotationKey, "acme/gpu-1"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error %q does not name %s", tc.reason, err, part)
				}
			}
			if _, found := machine.Host(); found || !machine.HasHost() {
				t.Errorf("%s: it names a host, or is taken for a Machine without one", tc.reason)
			}
		})
	}
}
