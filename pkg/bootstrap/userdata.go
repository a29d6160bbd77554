// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

const (
	cloudConfigHeader = "#cloud-config"
	// joinConfigurationPath is where the server keeps the JoinConfiguration, beside kubeadm's own files.
	joinConfigurationPath = "/etc/kubernetes/kubeadm-join.yaml"
)

// cloudConfig is the part of a cloud-config document that a join needs. Another document can be merged around it:
// its own files and commands come before these.
type cloudConfig struct {
	// Hostname, with PreserveHostname false, makes the server's own name that of its Node, whatever the image or the
	// config drive's metadata say.
	Hostname         string `json:"hostname,omitempty"`
	PreserveHostname *bool  `json:"preserve_hostname,omitempty"`
	// ManageEtcHosts "localhost" makes the hostname resolve without a DNS server, which kubeadm looks for.
	ManageEtcHosts string      `json:"manage_etc_hosts,omitempty"`
	WriteFiles     []writeFile `json:"write_files,omitempty"`
	// RunCmd holds commands, each a list of words.
	RunCmd [][]string `json:"runcmd,omitempty"`
}

type writeFile struct {
	Path        string `json:"path"`
	Owner       string `json:"owner,omitempty"`
	Permissions string `json:"permissions,omitempty"`
	Encoding    string `json:"encoding,omitempty"`
	Content     string `json:"content"`
}

// UserData returns the cloud-config document with which a server joins. It holds the token in the clear: it belongs
// in a Secret and nowhere else. Equal values give equal bytes. The error names every value that is not usable.
func UserData(j Join) ([]byte, error) {
	if err := j.Validate(); err != nil {
		return nil, fmt.Errorf("building user data, %w", err)
	}
	configuration, err := yaml.Marshal(joinConfigurationFor(j))
	if err != nil {
		return nil, fmt.Errorf("building user data, encoding the kubeadm configuration, %w", err)
	}
	preserve := false
	document, err := yaml.Marshal(cloudConfig{
		Hostname:         j.NodeName,
		PreserveHostname: &preserve,
		ManageEtcHosts:   "localhost",
		WriteFiles: []writeFile{{
			Path:        joinConfigurationPath,
			Owner:       "root:root",
			Permissions: "0600",
			Content:     string(configuration),
		}},
		RunCmd: [][]string{{"kubeadm", "join", "--config", joinConfigurationPath}},
	})
	if err != nil {
		return nil, fmt.Errorf("building user data, encoding the cloud-config, %w", err)
	}
	return append([]byte(cloudConfigHeader+"\n"), document...), nil
}
