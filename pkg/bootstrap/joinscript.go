// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// JoinScriptName is the file name of the join script. cloud-init runs the scripts of user data in the order of their
	// names: this one comes after "runcmd", which has the user's commands, and after "part-001", a script of the user's.
	JoinScriptName = "zz-karpenter-metal3-join"
	// JoinScriptEnd is the line after each file that the join script writes.
	JoinScriptEnd = "END_OF_FILE_OF_KARPENTER_METAL3"
	// joinConfigurationPath is where the server keeps the JoinConfiguration, beside kubeadm's own files.
	joinConfigurationPath = "/etc/kubernetes/kubeadm-join.yaml"
)

// joinScript is what a server does to join: it writes files and then runs commands.
type joinScript struct {
	files    []joinFile
	commands []string
}

type joinFile struct{ path, permissions, content string }

// hostConfig is the cloud-config of a join, for what is missing in the user's.
type hostConfig struct {
	// Hostname, with PreserveHostname false, makes the server's own name that of its Node, whatever the image or the
	// config drive's metadata say.
	Hostname         string `json:"hostname"`
	PreserveHostname bool   `json:"preserve_hostname"`
	// ManageEtcHosts "localhost" makes the hostname resolve without a DNS server, which kubeadm looks for.
	ManageEtcHosts string `json:"manage_etc_hosts"`
}

// JoinUserData returns the user data with which a server joins, to be given as it is or to UserData. It holds the token in the
// clear: it belongs in a Secret and nowhere else. Equal values give equal bytes. The error names every value that is not
// usable.
func JoinUserData(j Join) ([]byte, error) {
	if err := j.Validate(); err != nil {
		return nil, fmt.Errorf("building user data, %w", err)
	}
	script, err := kubeadmScript(j)
	if j.fetchesScript() {
		script, err = vclusterScriptOf(j)
	}
	if err != nil {
		return nil, fmt.Errorf("building user data, %w", err)
	}
	host, err := yaml.Marshal(hostConfig{Hostname: j.NodeName, ManageEtcHosts: "localhost"})
	if err != nil {
		return nil, fmt.Errorf("building user data, encoding the cloud-config, %w", err)
	}
	return messageOf([]part{
		{content: append([]byte(cloudConfigHeader+"\n"), host...), mergeType: mergeAdd},
		{content: []byte(script.text()), filename: JoinScriptName},
	})
}

// kubeadmScript returns the script with which a server joins by kubeadm: it prepares the server where the image has not,
// and then it joins.
func kubeadmScript(j Join) (joinScript, error) {
	configuration, err := yaml.Marshal(joinConfigurationFor(j))
	if err != nil {
		return joinScript{}, fmt.Errorf("encoding the kubeadm configuration, %w", err)
	}
	return joinScript{
		files: []joinFile{
			{prepareScriptPath, "0755", prepareScript},
			{joinConfigurationPath, "0600", string(configuration)},
		},
		commands: []string{
			strings.TrimSpace("sh " + inRoot(prepareScriptPath) + " " + j.KubernetesVersion),
			"kubeadm join --config " + inRoot(joinConfigurationPath),
		},
	}, nil
}

// inRoot is the path of a file in the script. NODE_ROOT is empty on a server; tests set it.
func inRoot(file string) string { return `"$NODE_ROOT"` + file }

// text returns the script for the shell. Each file is written anew, so that one of the user's of that name, its links and its
// permissions change nothing.
func (s joinScript) text() string {
	var text strings.Builder
	text.WriteString("#!/bin/sh\n# Joins this server to its cluster. Written by karpenter-provider-metal3.\n: \"${NODE_ROOT:=}\"\n")
	for _, file := range s.files {
		name := inRoot(file.path)
		fmt.Fprintf(&text, "mkdir -p %s\nrm -f %s\n", inRoot(path.Dir(file.path)), name)
		fmt.Fprintf(&text, "(umask 077; cat >%s) <<'%s'\n%s\n%s\n", name, JoinScriptEnd, strings.TrimRight(file.content, "\n"), JoinScriptEnd)
		fmt.Fprintf(&text, "chmod %s %s\n", file.permissions, name)
	}
	for _, command := range s.commands {
		text.WriteString(command + "\n")
	}
	return text.String()
}
