// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook has the ValidatingWebhookConfiguration of the management cluster: which requests the API server sends
// to cmd/webhook, and where. management.yaml is a template; Management fills it in.
package webhook

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

//go:embed management.yaml
var management string

// ConfigurationName is the name of the ValidatingWebhookConfiguration.
const ConfigurationName = "karpenter-metal3"

// ManagerUser is the default user name of the manager.
const ManagerUser = "karpenter-metal3-manager"

// Options of the configuration. Exactly one of URL and Service is set.
type Options struct {
	// URL of the webhook, without a path: "https://127.0.0.1:9443".
	URL string
	// Service in front of the webhook. Its path is ignored.
	Service *admissionregistrationv1.ServiceReference
	// Managers are the user names of the manager. Unset means ManagerUser.
	Managers []string
	// CABundle verifies the webhook's certificate, PEM. A webhook that rotates its certificates writes it itself.
	CABundle []byte
}

// Management returns the configuration for the management cluster.
func Management(options Options) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	if (options.URL == "") == (options.Service == nil) {
		return nil, errors.New("making the configuration of the webhook, neither or both of a URL and a service are given: give one")
	}
	if len(options.Managers) == 0 {
		options.Managers = []string{ManagerUser}
	}
	parsed, err := template.New("management.yaml").Option("missingkey=error").Funcs(template.FuncMap{
		"clientConfig": options.clientConfig,
		"managers": func() string {
			quoted := make([]string, len(options.Managers))
			for i, user := range options.Managers {
				quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(user) + "'"
			}
			return "[" + strings.Join(quoted, ", ") + "]"
		},
	}).Parse(management)
	if err != nil {
		return nil, fmt.Errorf("parsing the template of the webhook's configuration, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, nil); err != nil {
		return nil, fmt.Errorf("filling in the template of the webhook's configuration, %w", err)
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(filled.Bytes(), configuration); err != nil {
		return nil, fmt.Errorf("reading the webhook's configuration, %w", err)
	}
	return configuration, nil
}

// clientConfig returns the address of a webhook, as JSON, which is YAML too.
func (o Options) clientConfig(path string) (string, error) {
	config := admissionregistrationv1.WebhookClientConfig{CABundle: o.CABundle}
	if o.Service != nil {
		config.Service = o.Service.DeepCopy()
		config.Service.Path = &path
	} else {
		url := o.URL + path
		config.URL = &url
	}
	text, err := json.Marshal(config)
	return string(text), err
}
