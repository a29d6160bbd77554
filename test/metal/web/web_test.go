// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net/http"
	"testing"
)

func TestServer(t *testing.T) {
	server, err := Start(Loopback, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }))
	if err != nil {
		t.Fatal(err)
	}
	get := func() (string, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/here", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }() // it was read, or there is an error already
		content, err := io.ReadAll(response.Body)
		return string(content), err
	}
	if got, err := get(); err != nil || got != "/here" {
		t.Errorf("it answers %q, %v", got, err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if got, err := get(); err == nil {
		t.Errorf("it is closed, but answers %q", got)
	}
}
