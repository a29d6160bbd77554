// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook has the webhook configurations of the management cluster: which requests the API server sends to
// cmd/webhook, and where. management.yaml and mutating.yaml are templates; Management and Mutating fill them in.
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

//go:embed management.yaml
var management string

//go:embed mutating.yaml
var mutating string

// ConfigurationName is the name of the ValidatingWebhookConfiguration, and of the MutatingWebhookConfiguration.
const ConfigurationName = "karpenter-metal3"

// ManagerUser is the default user name of the manager.
const ManagerUser = "karpenter-metal3-manager"

// Options of a configuration. Exactly one of URL and Service is set.
type Options struct {
	// URL of the webhook, without a path: "https://127.0.0.1:9443".
	URL string
	// Service in front of the webhook. Its path is ignored.
	Service *admissionregistrationv1.ServiceReference
	// Managers are the user names of the manager. Unset means ManagerUser.
	Managers []string
	// CABundle verifies the webhook's certificate, PEM. A manager that makes the certificates writes it itself.
	CABundle []byte
}

// Management returns the configuration for the kinds of the management cluster.
func Management(options Options) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return configuration, options.fill(management, configuration)
}

// Mutating returns the configuration for what the webhook changes.
func Mutating(options Options) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	return configuration, options.fill(mutating, configuration)
}

// Both returns both configurations.
func Both(options Options) ([]client.Object, error) {
	management, err := Management(options)
	if err != nil {
		return nil, err
	}
	mutating, err := Mutating(options)
	return []client.Object{management, mutating}, err
}

// fill reads a configuration from a template.
func (o Options) fill(from string, target any) error {
	if (o.URL == "") == (o.Service == nil) {
		return errors.New("making the configuration of the webhook, neither or both of a URL and a service are given: give one")
	}
	if len(o.Managers) == 0 {
		o.Managers = []string{ManagerUser}
	}
	parsed, err := template.New("webhook").Option("missingkey=error").Funcs(template.FuncMap{
		"clientConfig": o.clientConfig,
		"managers": func() string {
			quoted := make([]string, len(o.Managers))
			for i, user := range o.Managers {
				quoted[i] = "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(user) + "'"
			}
			return "[" + strings.Join(quoted, ", ") + "]"
		},
	}).Parse(from)
	if err != nil {
		return fmt.Errorf("parsing the template of the webhook's configuration, %w", err)
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, nil); err != nil {
		return fmt.Errorf("filling in the template of the webhook's configuration, %w", err)
	}
	if err := yaml.UnmarshalStrict(filled.Bytes(), target); err != nil {
		return fmt.Errorf("reading the webhook's configuration, %w", err)
	}
	return nil
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
