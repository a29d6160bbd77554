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

	"encoding/json"
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
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

// vclusterConfig returns the cloud-config with which a server joins a vCluster: its own script, fetched from the
// tenant's endpoint, installs and joins; what this Machine's kubelet needs beside goes to where kubelet's service
// looks for more arguments.
func vclusterConfig(j Join) cloudConfig {
	address := url.URL{Scheme: "https", Host: j.APIServerEndpoint, Path: vclusterJoinPath, RawQuery: url.Values{"token": {j.Token.Reveal()}}.Encode()}
	files := []writeFile{
		{Path: vclusterRequestPath, Permissions: "0600", Content: fmt.Sprintf("url = %q\n", address.String())},
		{Path: vclusterCAPath, Permissions: "0644", Content: string(j.CACertificates)},
		{Path: vclusterScriptPath, Permissions: "0755", Content: vclusterScript},
	}
	for _, path := range kubeletEnvironmentPaths {
		files = append(files, writeFile{Path: path, Permissions: "0644", Content: kubeletArgsVariable + "'" + strings.Join(kubeletArgsOf(j), " ") + "'\n"})
	}
	return cloudConfig{WriteFiles: files, RunCmd: [][]string{{"sh", vclusterScriptPath, vclusterRequestPath, vclusterCAPath}}}
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

// parseVCluster is the inverse of vclusterConfig.
func parseVCluster(boot bootDocument) (Join, error) {
	j := Join{Mode: v1alpha1.JoinVCluster, Labels: map[string]string{}, KubeletArgs: map[string]string{}}
	if err := json.Unmarshal(boot.Hostname, &j.NodeName); err != nil {
		return Join{}, errors.New("its hostname is not text")
	}
	request, err := fileAt(boot.WriteFiles, vclusterRequestPath)
	if err != nil {
		return Join{}, err
	}
	var address string
	if _, err := fmt.Sscanf(string(request), "url = %q", &address); err != nil {
		return Join{}, fmt.Errorf("file %s holds no url", vclusterRequestPath)
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Path != vclusterJoinPath {
		return Join{}, fmt.Errorf("file %s does not hold the URL of a join script", vclusterRequestPath)
	}
	j.APIServerEndpoint = parsed.Host
	if j.Token, err = ParseToken(parsed.Query().Get("token")); err != nil {
		return Join{}, fmt.Errorf("file %s, %w", vclusterRequestPath, err)
	}
	if j.CACertificates, err = fileAt(boot.WriteFiles, vclusterCAPath); err != nil {
		return Join{}, err
	}
	if j.CACertHashes, err = CACertHashes(j.CACertificates); err != nil {
		return Join{}, fmt.Errorf("file %s, %w", vclusterCAPath, err)
	}
	environment, err := fileAt(boot.WriteFiles, kubeletEnvironmentPaths[0])
	if err != nil {
		return Join{}, err
	}
	args, found := strings.CutPrefix(strings.TrimSpace(string(environment)), kubeletArgsVariable)
	if !found {
		return Join{}, fmt.Errorf("file %s does not set %s", kubeletEnvironmentPaths[0], kubeletArgsVariable)
	}
	if err := j.setKubeletArgs(strings.Fields(strings.Trim(args, "'"))); err != nil {
		return Join{}, fmt.Errorf("file %s, %w", kubeletEnvironmentPaths[0], err)
	}
	return j, nil
}

// setKubeletArgs is the inverse of kubeletArgsOf.
func (j *Join) setKubeletArgs(args []string) error {
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if name == argRegisterTaints {
			taints, err := parseTaints(value)
			if err != nil {
				return err
			}
			j.Taints = taints
			continue
		}
		if err := j.setKubeletArg(name, value); err != nil {
			return err
		}
	}
	return nil
}

func parseTaints(text string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for part := range strings.SplitSeq(text, ",") {
		key, rest, ok := strings.Cut(part, "=")
		value, effect, also := strings.Cut(rest, ":")
		if !ok || !also {
			return nil, fmt.Errorf("kubelet argument %q holds %q, which is not key=value:effect", argRegisterTaints, part)
		}
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}
