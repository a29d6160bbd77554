// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// ParkingLot is the network of unclaimed servers.
	ParkingLot = ""
	// requestTimeout is the limit for one request, from the connection to the end of the response.
	requestTimeout = 10 * time.Second
	// maxBody is how many bytes of a response are read.
	maxBody = 4 << 10
	// maxReason is how many bytes of a response are shown.
	maxReason = 200
)

// ErrMoving is returned, wrapped, while the endpoint is moving the server.
var ErrMoving = errors.New("the server is being moved")

// Move is the desired network of a server.
type Move struct {
	// Host is the BareMetalHost.
	Host types.NamespacedName `json:"-"`
	// Network is the network in the form of v1alpha1.TenantNetwork, or ParkingLot.
	Network string `json:"network"`
	// MACs are the known MACs of the server's network interfaces, the boot interface first.
	MACs []string `json:"macs,omitempty"`
	// Tenant is the namespace of the tenant's Machines; empty for the parking lot.
	Tenant string `json:"tenant,omitempty"`
	// Topology are the node labels that come from the BareMetalHost: nvlink-domain, rack. If the fabric manager
	// supports it, a tenant's servers in an NVLink domain are a partition of the domain.
	Topology map[string]string `json:"topology,omitempty"`
}

// Endpoint moves servers.
type Endpoint interface {
	// Move returns nil once it is confirmed that the server is in the network, and a wrapped ErrMoving until then.
	Move(context.Context, Move) error
}

// HTTPEndpoint is the endpoint of docs/network.md.
type HTTPEndpoint struct {
	base *url.URL
	// credentials is a directory with tokenFile, caFile or both. It is empty without credentials.
	credentials string
	client      *http.Client
}

// Files in the directory of the credentials: the keys of the Secret.
const (
	tokenFile = "token"
	caFile    = "ca.crt"
)

// NewHTTPEndpoint returns the endpoint at an http or https URL. credentials is a directory, or empty. The error
// explains what is wrong with them.
func NewHTTPEndpoint(address, credentials string) (*HTTPEndpoint, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("the network endpoint %q is not an http or https URL: give one, for example https://switches.example.com/v1",
			address)
	}
	if credentials != "" && base.Scheme != "https" {
		return nil, fmt.Errorf("the network endpoint %q has credentials and is not https: the token would be sent in clear text", address)
	}
	refuseRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	e := &HTTPEndpoint{
		base: base, credentials: credentials, client: &http.Client{Timeout: requestTimeout, CheckRedirect: refuseRedirects},
	}
	if credentials == "" {
		return e, nil
	}
	token, err := e.token()
	if err != nil {
		return nil, err
	}
	pem, err := e.read(caFile)
	if err != nil {
		return nil, err
	}
	if token == "" && pem == nil {
		return nil, fmt.Errorf("the credentials of the network endpoint: %s has neither %s nor %s", credentials, tokenFile, caFile)
	}
	if pem != nil {
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the credentials of the network endpoint: %s has no certificate", filepath.Join(credentials, caFile))
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
		e.client.Transport = transport
	}
	return e, nil
}

// token reads the token for each request: kubelet replaces the file when the Secret changes. It may be "".
func (e *HTTPEndpoint) token() (string, error) {
	content, err := e.read(tokenFile)
	if token := string(bytes.TrimSpace(content)); err != nil || content == nil || token != "" {
		return token, err
	}
	return "", fmt.Errorf("the credentials of the network endpoint: %s is empty", filepath.Join(e.credentials, tokenFile))
}

// read returns nil for a missing file.
func (e *HTTPEndpoint) read(name string) ([]byte, error) {
	if e.credentials == "" {
		return nil, nil
	}
	content, err := os.ReadFile(filepath.Join(e.credentials, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the network endpoint, %w", err)
	}
	return content, nil
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
	token, err := e.token()
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
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
