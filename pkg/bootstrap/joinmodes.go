// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	_ "embed"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// joinConfigurationFor returns the kubeadm document for a valid Join. It has the token in the clear, so it must not be
// logged. It is a map, because kubeadm publishes its types only inside the module of all of Kubernetes.
func joinConfigurationFor(j Join) map[string]any {
	return map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
		"discovery": map[string]any{"bootstrapToken": map[string]any{
			"token": j.Token.Reveal(), "apiServerEndpoint": j.APIServerEndpoint, "caCertHashes": j.CACertHashes,
		}},
		"nodeRegistration": map[string]any{
			"name": j.NodeName,
			// Even if there are none: without the field, kubeadm adds its own defaults.
			"taints":           append([]corev1.Taint{}, j.Taints...),
			"kubeletExtraArgs": kubeletArgs(j),
		},
	}
}

// kubeletArg is an argument of the kubelet as kubeadm takes it.
type kubeletArg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// kubeletArgs returns the arguments of the kubelet. more come before the user's.
func kubeletArgs(j Join, more ...kubeletArg) []kubeletArg {
	args := []kubeletArg{{argProviderID, j.ProviderID}}
	if labels := SelfSettableLabels(j.Labels); len(labels) > 0 {
		args = append(args, kubeletArg{argNodeLabels, nodeLabelsArg(labels)})
	}
	args = append(args, more...)
	for _, name := range slices.Sorted(maps.Keys(j.KubeletArgs)) {
		args = append(args, kubeletArg{name, j.KubeletArgs[name]})
	}
	return args
}

const (
	// vclusterRequestPath holds the address of the join script, with the token in it, as a configuration of curl.
	vclusterRequestPath = "/etc/kubernetes/vcluster-join.curl"
	vclusterCAPath      = "/etc/kubernetes/vcluster-ca.crt"
	vclusterJoinPath    = "/node/join"
	argRegisterTaints   = "register-with-taints"
	kubeletArgsVariable = "KUBELET_EXTRA_ARGS="
)

// kubeletEnvironmentPaths are the files where the kubelet's service looks for extra arguments: in the packages of
// Debian and of Red Hat, and in vCluster's join script.
var kubeletEnvironmentPaths = []string{kubeletDebianPath, "/etc/sysconfig/kubelet", "/etc/vcluster/vcluster-flags.env"}

const (
	kubeletDebianPath = "/etc/default/kubelet"
	// kubeletDropInPath is read after 10-kubeadm.conf. The service from older join scripts of vCluster reads none of
	// the paths above: without this file its Node would have no provider ID.
	kubeletDropInPath = "/etc/systemd/system/kubelet.service.d/20-karpenter-metal3.conf"
	kubeletDropIn     = "[Service]\nEnvironmentFile=-" + kubeletDebianPath + "\n"
)

// vclusterScriptOf returns the script that makes a server join a vCluster. The vCluster's own script, fetched from the
// tenant's endpoint, installs and joins. The arguments for this Machine's kubelet go to the files where the kubelet's
// service looks for more.
func vclusterScriptOf(j Join) (bootScript, error) {
	address := url.URL{Scheme: "https", Host: j.APIServerEndpoint, Path: vclusterJoinPath,
		RawQuery: url.Values{"token": {j.Token.Reveal()}}.Encode()}
	certificates, err := certutil.ParseCertsPEM(j.CACertificates)
	if err != nil {
		return bootScript{}, fmt.Errorf("reading the cluster's CA certificates, %w", err)
	}
	// A bundle can have any text between its certificates. The script gets only the certificates.
	ca, err := certutil.EncodeCertificates(certificates...)
	if err != nil {
		return bootScript{}, fmt.Errorf("encoding the cluster's CA certificates, %w", err)
	}
	files := []bootFile{
		{vclusterRequestPath, "0600", fmt.Sprintf("url = %q\n", address.String())},
		{vclusterCAPath, "0644", string(ca)},
		{vclusterScriptPath, "0755", vclusterScript},
		{kubeletDropInPath, "0644", kubeletDropIn},
	}
	for _, path := range kubeletEnvironmentPaths {
		files = append(files, bootFile{path, "0644", kubeletArgsVariable + "'" + strings.Join(kubeletWords(j), " ") + "'\n"})
	}
	return bootScript{files: files, commands: []string{
		strings.Join([]string{"sh", inRoot(vclusterScriptPath), inRoot(vclusterRequestPath), inRoot(vclusterCAPath)}, " "),
	}}, nil
}

// kubeletWords returns the kubelet's arguments, including the taints, one word each.
func kubeletWords(j Join) []string {
	var more []kubeletArg
	if len(j.Taints) > 0 {
		taints := lo.Map(j.Taints, func(taint corev1.Taint, _ int) string {
			return taint.Key + "=" + taint.Value + ":" + string(taint.Effect)
		})
		more = []kubeletArg{{argRegisterTaints, strings.Join(taints, ",")}}
	}
	return lo.Map(kubeletArgs(j, more...), func(arg kubeletArg, _ int) string { return "--" + arg.Name + "=" + arg.Value })
}

const (
	// JoinScriptName is the file name of the join script. cloud-init runs the scripts of user data in the order of
	// their names: this one comes after "runcmd", with the user's commands, and after "part-001", a user's script.
	JoinScriptName = "zz-karpenter-metal3-join"
	// JoinScriptEnd is the line after each file that the join script writes.
	JoinScriptEnd = "END_OF_FILE_OF_KARPENTER_METAL3"
	// joinConfigurationPath is where the server keeps the JoinConfiguration, beside kubeadm's own files.
	joinConfigurationPath = "/etc/kubernetes/kubeadm-join.yaml"
)

// bootScript is what a server does at its first boot: it writes files and then runs commands.
type bootScript struct {
	files    []bootFile
	commands []string
}

type bootFile struct{ path, permissions, content string }

// JoinUserData returns the user data that makes a server join, for direct use or for UserData. It has the token in
// plain text, so it must be stored only in a Secret. Equal values give equal bytes. The error names every unusable
// value.
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
	host, err := yaml.Marshal(map[string]any{
		// The server gets the name of its Node, whatever the image or the config drive's metadata say.
		"hostname": j.NodeName, "preserve_hostname": false,
		// kubeadm looks for the name: it must resolve without a DNS server.
		"manage_etc_hosts": "localhost",
	})
	if err != nil {
		return nil, fmt.Errorf("building user data, encoding the cloud-config, %w", err)
	}
	return messageOf([]part{
		{content: append([]byte(cloudConfigHeader+"\n"), host...), mergeType: mergeAdd},
		{content: []byte(script.text("Joins this server to its cluster.")), filename: JoinScriptName},
	})
}

// kubeadmScript returns the script that makes a server join by kubeadm. It first prepares the server where the image
// has not.
func kubeadmScript(j Join) (bootScript, error) {
	configuration, err := yaml.Marshal(joinConfigurationFor(j))
	if err != nil {
		return bootScript{}, fmt.Errorf("encoding the kubeadm configuration, %w", err)
	}
	prepare := "sh " + inRoot(prepareScriptPath)
	if strings.HasPrefix(j.APIServerEndpoint, "[") {
		prepare += " --ipv6"
	}
	return bootScript{
		files: []bootFile{
			{prepareScriptPath, "0755", prepareScript},
			{joinConfigurationPath, "0600", string(configuration)},
		},
		commands: []string{
			strings.TrimSpace(prepare + " " + j.KubernetesVersion),
			"kubeadm join --config " + inRoot(joinConfigurationPath),
		},
	}, nil
}

// inRoot returns the path of a file in the script. NODE_ROOT is empty on a server; tests set it.
func inRoot(file string) string { return `"$NODE_ROOT"` + file }

// text returns the shell script, with a sentence about its purpose. It creates each file anew, so that a user's file of
// that name, its links and its permissions change nothing.
func (s bootScript) text(purpose string) string {
	var text strings.Builder
	text.WriteString("#!/bin/sh\n# " + purpose + " Written by karpenter-provider-metal3.\n: \"${NODE_ROOT:=}\"\n")
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

//go:embed prepare-node.sh
var prepareScript string

//go:embed vcluster-join.sh
var vclusterScript string

const (
	prepareScriptPath  = "/var/lib/karpenter-metal3/prepare-node.sh"
	vclusterScriptPath = "/var/lib/karpenter-metal3/vcluster-join.sh"
)
