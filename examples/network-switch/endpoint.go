// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// maxVLAN is the largest ID of IEEE 802.1Q.
	maxVLAN = 4094
	// maxBody bounds a request, in bytes.
	maxBody = 64 << 10
)

// A fabric has the ports of servers.
type fabric interface {
	// move has ports in a VLAN, untagged, and in no other, and returns whether it had to change anything. At no time is a server in two
	// networks, also after a crash.
	move(names []string, vlan uint16) (changed bool, err error)
}

// endpoint answers the requests of docs/network-endpoint.openapi.yaml.
type endpoint struct {
	fabric  fabric
	parking uint16
	// ports and token are the paths of files.
	ports, token string
}

func (e *endpoint) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /servers/{namespace}/{name}", func(w http.ResponseWriter, r *http.Request) {
		server := r.PathValue("namespace") + "/" + r.PathValue("name")
		network, err := e.move(server, r)
		if err != nil {
			status := http.StatusInternalServerError
			var refused refusal
			if errors.As(err, &refused) {
				status = refused.status
			}
			log.Printf("%q: %d %v", server, status, err)
			http.Error(w, err.Error(), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"network": network}) // the manager asks again if it has not read it
	})
	return mux
}

// refusal is an answer that does not change until a file, or the TenantCluster, is corrected.
type refusal struct {
	status int
	reason string
}

func (r refusal) Error() string { return r.reason }

func refuse(status int, format string, args ...any) error {
	return refusal{status: status, reason: fmt.Sprintf(format, args...)}
}

// move has a server in the network of the request, and returns the network once it is there.
func (e *endpoint) move(server string, r *http.Request) (string, error) {
	token, err := e.readToken()
	if err != nil {
		return "", err
	}
	got, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return "", refuse(http.StatusUnauthorized, "the request does not have the token of this switch")
	}
	var body struct {
		Network *string `json:"network"`
		Tenant  string  `json:"tenant"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&body); err != nil || body.Network == nil {
		return "", refuse(http.StatusBadRequest, "the body is no JSON object with a network")
	}
	vlan, err := e.vlanOf(*body.Network)
	if err != nil {
		return "", err
	}
	servers, err := e.readPorts()
	if err != nil {
		return "", err
	}
	ports := servers[server]
	if len(ports) == 0 {
		return "", refuse(http.StatusNotFound, "the switch does not know which port server %s is at", server)
	}
	changed, err := e.fabric.move(ports, vlan)
	if err != nil {
		return "", err
	}
	if changed {
		log.Printf("%s: %v is in VLAN %d, for tenant %q", server, ports, vlan, body.Tenant)
	}
	return *body.Network, nil
}

// vlanOf is the VLAN of a network of the contract.
func (e *endpoint) vlanOf(network string) (uint16, error) {
	if network == "" {
		return e.parking, nil
	}
	text, found := strings.CutPrefix(network, "vlan:")
	if !found {
		return 0, refuse(http.StatusUnprocessableEntity, "this switch knows VLANs and no other networks, and the network is %.100q: "+
			"set spec.network.vlan of the TenantCluster", network)
	}
	vlan, err := strconv.ParseUint(text, 10, 16)
	if err != nil || vlan < 1 || vlan > maxVLAN {
		return 0, refuse(http.StatusUnprocessableEntity, "%.100q is no VLAN from 1 to %d", text, maxVLAN)
	}
	if uint16(vlan) == e.parking {
		return 0, refuse(http.StatusUnprocessableEntity, "VLAN %d is that of unclaimed servers: a tenant in it would reach their installation",
			vlan)
	}
	return uint16(vlan), nil
}

// readPorts returns the ports of each server. Two servers at one port would move each other.
func (e *endpoint) readPorts() (map[string][]string, error) {
	content, err := os.ReadFile(e.ports)
	if err != nil {
		return nil, fmt.Errorf("reading the ports of the servers, %w", err)
	}
	servers := map[string][]string{}
	if err := yaml.UnmarshalStrict(content, &servers); err != nil {
		return nil, fmt.Errorf("reading the ports of the servers, %s is no map of lists, %w", e.ports, err)
	}
	owners := map[string]string{}
	for server, ports := range servers {
		for _, port := range ports {
			if other, taken := owners[port]; taken {
				return nil, fmt.Errorf("reading the ports of the servers, %s gives port %s to %s and to %s", e.ports, port, min(server, other),
					max(server, other))
			}
			owners[port] = server
		}
	}
	return servers, nil
}

func (e *endpoint) readToken() (string, error) {
	content, err := os.ReadFile(e.token)
	if err != nil {
		return "", fmt.Errorf("reading the token, %w", err)
	}
	token := string(bytes.TrimSpace(content))
	if token == "" {
		return "", fmt.Errorf("reading the token, %s is empty", e.token)
	}
	return token, nil
}
