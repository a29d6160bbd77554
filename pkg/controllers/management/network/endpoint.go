// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network moves servers between the parking lot, the network of unclaimed servers, and the networks of tenants. It is a
// reference for network controllers: it owns the hook v1alpha1.NetworkHook and drives an HTTP endpoint in front of the switches.
//
// A request states the desired network and not an action, so it can be repeated:
//
//	PUT <endpoint>/servers/<namespace>/<name of the BareMetalHost>
//	{"network": "vlan:100", "macs": ["00:00:5e:00:53:01"], "tenant": "<namespace of the Machine>"}
//
// network is vlan:N, vni:N or id:NAME, and "" for the parking lot. The endpoint answers
//
//	200 {"network": "vlan:100"}   the server is in that network, and in no other
//	202                           it is being moved; repeat the request
//	4xx                           it will not be moved; the body is the reason
//	anything else                 an error; repeat the request
//
// Only a 200 that repeats the network is a confirmation. The last request is valid: an endpoint that works
// asynchronously must drop earlier ones. The controller never sends two requests for one server at a time.
package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// ParkingLot is the network of unclaimed servers.
	ParkingLot = ""
	// requestTimeout is for one request, from the connection to the end of the response.
	requestTimeout = 10 * time.Second
	// maxBody is how much of a response is read, in bytes.
	maxBody = 4 << 10
	// maxReason is how much of a response is shown, in bytes.
	maxReason = 200
)

// ErrMoving is returned, wrapped, while the endpoint is moving the server.
var ErrMoving = errors.New("the server is being moved")

// Move is the desired network of a server.
type Move struct {
	// Host is the BareMetalHost.
	Host types.NamespacedName `json:"-"`
	// Network as v1alpha1.TenantNetwork writes it, or ParkingLot.
	Network string `json:"network"`
	// MACs of the server's network interfaces that are known, the one that it boots from first.
	MACs []string `json:"macs,omitempty"`
	// Tenant is the namespace of the tenant's Machines; empty for the parking lot.
	Tenant string `json:"tenant,omitempty"`
}

// Endpoint moves servers.
type Endpoint interface {
	// Move returns nil once it is confirmed that the server is in the network, and an error that wraps ErrMoving while it is
	// being moved.
	Move(context.Context, Move) error
}

// HTTPEndpoint is the endpoint that the package describes.
type HTTPEndpoint struct {
	base   *url.URL
	client *http.Client
}

// NewHTTPEndpoint returns the endpoint at an http or https URL. The error says what is wrong with the URL.
func NewHTTPEndpoint(address string) (*HTTPEndpoint, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("the network endpoint %q is not an http or https URL: give one, for example https://switches.example.com/v1",
			address)
	}
	refuseRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &HTTPEndpoint{base: base, client: &http.Client{Timeout: requestTimeout, CheckRedirect: refuseRedirects}}, nil
}

// Move implements Endpoint.
func (e *HTTPEndpoint) Move(ctx context.Context, move Move) error {
	body, err := json.Marshal(move)
	if err != nil {
		return fmt.Errorf("encoding the move of server %s, %w", move.Host, err)
	}
	address := e.base.JoinPath("servers", move.Host.Namespace, move.Host.Name).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking for the move of server %s, %w", move.Host, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return fmt.Errorf("moving server %s to %s, %w", move.Host, describe(move.Network), err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return fmt.Errorf("reading the response to the move of server %s, %w", move.Host, err)
	}
	if err := confirmed(move, response.StatusCode, content); err != nil {
		return fmt.Errorf("moving server %s to %s, %w", move.Host, describe(move.Network), err)
	}
	return nil
}

// confirmed returns an error unless the response confirms that the server is in the network.
func confirmed(move Move, status int, content []byte) error {
	switch status {
	case http.StatusOK:
	case http.StatusAccepted:
		return ErrMoving
	default:
		reason := strings.TrimSpace(string(content))
		return fmt.Errorf("the endpoint answers %d %s %.*s", status, http.StatusText(status), maxReason, reason)
	}
	var confirmation struct {
		Network *string `json:"network"`
	}
	if err := json.Unmarshal(content, &confirmation); err != nil || confirmation.Network == nil {
		return errors.New(`the endpoint answers 200 without {"network": ...} and so confirms nothing`)
	}
	if *confirmation.Network != move.Network {
		return fmt.Errorf("the endpoint answers that the server is in %s", describe(*confirmation.Network))
	}
	return nil
}

func describe(network string) string {
	if network == ParkingLot {
		return "the parking lot"
	}
	return "network " + network
}
