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
	config, err := kubeadmConfig(j)
	if j.fetchesScript() {
		config, err = vclusterConfig(j), nil
	}
	if err != nil {
		return nil, fmt.Errorf("building user data, %w", err)
	}
	preserve := false
	config.Hostname, config.PreserveHostname, config.ManageEtcHosts = j.NodeName, &preserve, "localhost"
	for i := range config.WriteFiles {
		config.WriteFiles[i].Owner = "root:root"
	}
	document, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("building user data, encoding the cloud-config, %w", err)
	}
	return append([]byte(cloudConfigHeader+"\n"), document...), nil
}

// kubeadmConfig returns the cloud-config with which a server joins by kubeadm: it is made fit for that where its
// image is not, and then it joins.
func kubeadmConfig(j Join) (cloudConfig, error) {
	configuration, err := yaml.Marshal(joinConfigurationFor(j))
	if err != nil {
		return cloudConfig{}, fmt.Errorf("encoding the kubeadm configuration, %w", err)
	}
	prepare := []string{"sh", prepareScriptPath}
	if j.KubernetesVersion != "" {
		prepare = append(prepare, j.KubernetesVersion)
	}
	return cloudConfig{
		WriteFiles: []writeFile{
			{Path: prepareScriptPath, Permissions: "0755", Content: prepareScript},
			{Path: joinConfigurationPath, Permissions: "0600", Content: string(configuration)},
		},
		RunCmd: [][]string{prepare, {"kubeadm", "join", "--config", joinConfigurationPath}},
	}, nil
}
