// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package callers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestBounded: one address that asks without end has few requests reviewed, and takes none of another's.
func TestBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		address func(int) string
		all     bool
	}{
		"One":     {"a pod that tries tokens", func(n int) string { return fmt.Sprintf("192.0.2.1:%d", 1024+n) }, false},
		"Network": {"a pod with the addresses of a network", func(n int) string { return fmt.Sprintf("[2001:db8::%x]:1024", n) }, false},
		"Others":  {"each has its own", func(n int) string { return fmt.Sprintf("192.0.2.%d:1024", n) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			reviewed := 0
			handler := bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reviewed++ }))
			ask := func(from string) int {
				request, answer := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
				request.RemoteAddr = from
				handler.ServeHTTP(answer, request)
				return answer.Code
			}
			const requests = 250
			for n := range requests {
				ask(tc.address(n))
			}
			if tc.all != (reviewed == requests) || !tc.all && reviewed > requests/10 {
				t.Errorf("%s: %d of %d requests are reviewed", tc.reason, reviewed, requests)
			}
			if code := ask("198.51.100.1:1024"); code != http.StatusOK {
				t.Errorf("%s: Prometheus gets %d", tc.reason, code)
			}
		})
	}
}
