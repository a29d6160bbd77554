// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
)

const (
	// Advertised is the microversion that the bridge reports to clients. baremetal-operator v0.13 requires it.
	Advertised = "1.89"
	// Forwarded is the newest microversion of Ironic 21.4. Requests are forwarded with it.
	Forwarded = "1.82"

	versionHeader        = "X-Openstack-Ironic-Api-Version"
	maximumVersionHeader = "X-Openstack-Ironic-Api-Maximum-Version"
)

// unknown are fields of a node that came after Forwarded.
var unknown = []string{"firmware_interface", "disable_power_off"}

// A Bridge is an http.Handler that serves the API of Ironic at microversion Advertised, from an Ironic at Forwarded.
type Bridge struct {
	ironic *url.URL
	proxy  *httputil.ReverseProxy
}

// New makes a bridge to the Ironic at a URL.
func New(ironic *url.URL) *Bridge {
	b := &Bridge{ironic: ironic}
	b.proxy = &httputil.ReverseProxy{Rewrite: b.rewrite, ModifyResponse: b.modify}
	return b
}

// ServeHTTP forwards a request. A node that cannot be parsed is refused, as Ironic does.
func (b *Bridge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && strings.TrimSuffix(r.URL.Path, "/") == "/v1/nodes" {
		if err := olderNode(r); err != nil {
			http.Error(w, "the bridge to Ironic cannot parse the new node: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	b.proxy.ServeHTTP(w, r)
}

func (b *Bridge) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(b.ironic)
	if r.In.Header.Get(versionHeader) != "" {
		r.Out.Header.Set(versionHeader, Forwarded)
	}
	// Without the client's header the transport compresses and decompresses by itself, so the response can be parsed
	// here.
	r.Out.Header.Del("Accept-Encoding")
}

// olderNode rewrites the request for a new node to what Ironic knew at Forwarded.
func olderNode(r *http.Request) error {
	node := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&node); err != nil {
		return err
	}
	for _, field := range unknown {
		delete(node, field)
	}
	if node["inspect_interface"] = "redfish"; node["driver"] == "ipmi" {
		node["inspect_interface"] = "inspector"
	}
	content, err := json.Marshal(node)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	r.Header.Set("Content-Length", strconv.Itoa(len(content)))
	return nil
}

func (b *Bridge) modify(response *http.Response) error {
	if response.Header.Get(maximumVersionHeader) != "" {
		response.Header.Set(maximumVersionHeader, Advertised)
	}
	path := strings.TrimSuffix(response.Request.URL.Path, "/")
	switch node, isInventory := inventoryOf(path); {
	case path == "" || path == "/v1":
		content, err := io.ReadAll(response.Body)
		if err != nil {
			return fmt.Errorf("reading Ironic's versions, %w", err)
		}
		replace(response, response.StatusCode, bytes.ReplaceAll(content, []byte(`"`+Forwarded+`"`), []byte(`"`+Advertised+`"`)))
	case isInventory && response.Request.Method == http.MethodGet && response.StatusCode == http.StatusNotFound:
		content, err := b.inventory(response.Request.Context(), node)
		if errors.Is(err, errNotInspected) {
			return nil // the error is in Ironic's response
		}
		if err != nil {
			return err
		}
		replace(response, http.StatusOK, content)
	}
	return nil
}

// replace replaces the body of a response.
func replace(response *http.Response, status int, content []byte) {
	_ = response.Body.Close() // the body is not forwarded
	response.StatusCode, response.Status = status, fmt.Sprintf("%d %s", status, http.StatusText(status))
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	response.Header.Set("Content-Type", "application/json")
	response.Header.Set("Content-Length", strconv.Itoa(len(content)))
}

// inventoryOf returns the node whose inventory a path is.
func inventoryOf(path string) (node string, ok bool) {
	rest, found := strings.CutPrefix(path, "/v1/nodes/")
	node, last, _ := strings.Cut(rest, "/")
	return node, found && last == "inventory"
}

// get reads something of Ironic's.
func (b *Bridge) get(ctx context.Context, path string, target any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.ironic.JoinPath(path).String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set(versionHeader, Forwarded)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking Ironic, %w", err)
	}
	defer func() { _ = response.Body.Close() }() // it was read, or there is an error already
	if response.StatusCode == http.StatusNotFound {
		return errNotInspected
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking Ironic for %s, the response is %s", path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(target); err != nil {
		return fmt.Errorf("reading Ironic's response at %s, %w", path, err)
	}
	return nil
}
