// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deployagent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// microversion of Ironic's API with agent tokens and agent_verify_ca, the last one that concerned agents.
const microversion = "1.68"

// hiddenToken is in Ironic's response if the agent got its token on the medium.
const hiddenToken = "******"

// lookUp asks Ironic for the node of this server and returns its UUID.
func (a *Agent) lookUp(ctx context.Context) (string, error) {
	var answer struct {
		Node struct {
			UUID string `json:"uuid"`
		} `json:"node"`
		Config struct {
			AgentToken string `json:"agent_token"`
		} `json:"config"`
	}
	query := url.Values{"addresses": {strings.Join(a.options.Server.MACs, ",")}}
	if err := a.ask(ctx, http.MethodGet, "/v1/lookup?"+query.Encode(), nil, &answer); err != nil {
		return "", err
	}
	token := answer.Config.AgentToken
	if a.options.Parameters.Token != "" {
		token = a.options.Parameters.Token
	}
	if token == hiddenToken {
		return "", fmt.Errorf("the token of node %s has already been given out by Ironic, and the boot medium has none", answer.Node.UUID)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = token
	return answer.Node.UUID, nil
}

// heartbeat sends the agent's URL to Ironic.
func (a *Agent) heartbeat(ctx context.Context, node, callback string) error {
	return a.ask(ctx, http.MethodPost, "/v1/heartbeat/"+node, map[string]string{
		"callback_url": callback, "agent_version": version, "agent_token": a.secret(),
	}, nil)
}

func (a *Agent) secret() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token
}

// ask makes a call to Ironic and decodes the response into into, which may be nil.
func (a *Agent) ask(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("writing a request, %w", err)
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.options.Parameters.IronicURL, "/")+path, reader)
	if err != nil {
		return fmt.Errorf("making a request, %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("X-OpenStack-Ironic-API-Version", microversion)
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the response to %s %s, %w", method, path, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, data)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the response to %s %s, %w", method, path, err)
	}
	return nil
}
