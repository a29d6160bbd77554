// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"
)

const (
	// vclusterRequestPath holds the address of the join script, with the token in it, as a configuration of curl.
	vclusterRequestPath = "/etc/kubernetes/vcluster-join.curl"
	vclusterCAPath      = "/etc/kubernetes/vcluster-ca.crt"
	vclusterJoinPath    = "/node/join"
	argRegisterTaints   = "register-with-taints"
	kubeletArgsVariable = "KUBELET_EXTRA_ARGS="
)

// kubeletEnvironmentPaths are where the packages of Debian and of Red Hat look for extra arguments of the kubelet.
var kubeletEnvironmentPaths = []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet"}

// vclusterScriptOf returns the script with which a server joins a vCluster: the vCluster's own script, fetched from the
// tenant's endpoint, installs and joins. The arguments for this Machine's kubelet go to where the kubelet's service looks for
// more of them.
func vclusterScriptOf(j Join) (joinScript, error) {
	address := url.URL{Scheme: "https", Host: j.APIServerEndpoint, Path: vclusterJoinPath,
		RawQuery: url.Values{"token": {j.Token.Reveal()}}.Encode()}
	certificates, err := certutil.ParseCertsPEM(j.CACertificates)
	if err != nil {
		return joinScript{}, fmt.Errorf("reading the cluster's CA certificates, %w", err)
	}
	// A bundle can have any text between its certificates. Only they become part of the script.
	ca, err := certutil.EncodeCertificates(certificates...)
	if err != nil {
		return joinScript{}, fmt.Errorf("encoding the cluster's CA certificates, %w", err)
	}
	files := []joinFile{
		{vclusterRequestPath, "0600", fmt.Sprintf("url = %q\n", address.String())},
		{vclusterCAPath, "0644", string(ca)},
		{vclusterScriptPath, "0755", vclusterScript},
	}
	for _, path := range kubeletEnvironmentPaths {
		files = append(files, joinFile{path, "0644", kubeletArgsVariable + "'" + strings.Join(kubeletArgsOf(j), " ") + "'\n"})
	}
	return joinScript{files: files, commands: []string{
		strings.Join([]string{"sh", inRoot(vclusterScriptPath), inRoot(vclusterRequestPath), inRoot(vclusterCAPath)}, " "),
	}}, nil
}

// kubeletArgsOf returns the kubelet's arguments, one word each.
func kubeletArgsOf(j Join) []string {
	args := []string{"--" + argProviderID + "=" + j.ProviderID}
	if labels := SelfSettableLabels(j.Labels); len(labels) > 0 {
		args = append(args, "--"+argNodeLabels+"="+nodeLabelsArg(labels))
	}
	if len(j.Taints) > 0 {
		var taints []string
		for _, taint := range j.Taints {
			taints = append(taints, taint.Key+"="+taint.Value+":"+string(taint.Effect))
		}
		args = append(args, "--"+argRegisterTaints+"="+strings.Join(taints, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(j.KubeletArgs)) {
		args = append(args, "--"+name+"="+j.KubeletArgs[name])
	}
	return args
}

// validateVCluster returns what is wrong with a join that only matters when it is a vCluster's script that joins.
func validateVCluster(j Join) []error {
	var errs []error
	hashes, err := CACertHashes(j.CACertificates)
	if err != nil {
		errs = append(errs, err)
	} else if !slices.Equal(hashes, j.CACertHashes) {
		errs = append(errs, errors.New("the CA hashes are not those of the CA certificates"))
	}
	return errs
}
