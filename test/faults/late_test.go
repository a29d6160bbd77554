// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLateWatches(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a server is free")
	}))
	defer server.Close()
	for name, tc := range map[string]struct {
		reason, query string
		late          bool
	}{
		"list":           {reason: "what a client asks for is not behind what it has written"},
		"watch":          {reason: "a cache is behind", query: "?watch=true&resourceVersion=1", late: true},
		"not a watch":    {reason: "the API server answers it as a list", query: "?watch=false"},
		"other argument": {reason: "only the name of a label says watch", query: "?labelSelector=watch%3Dtrue"},
	} {
		t.Run(name, func(t *testing.T) {
			waits := 0
			client := &http.Client{Transport: lateWatches(func(context.Context) { waits++ })(http.DefaultTransport)}
			response, err := client.Get(server.URL + tc.query)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if body, err := io.ReadAll(response.Body); err != nil || string(body) != "a server is free" {
				t.Errorf("read %q, %v", body, err)
			}
			if late := waits > 0; late != tc.late {
				t.Errorf("%d waits; %s", waits, tc.reason)
			}
		})
	}
}
