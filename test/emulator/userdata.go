// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// ErrNoJoin is returned for user data without a join.
var ErrNoJoin = errors.New("no script in it runs \"kubeadm join --config FILE\"")

// ReadJoin returns the join of user data: the inverse of bootstrap.JoinUserData. Unknown fields of the
// JoinConfiguration are errors, because an emulated server would silently ignore them. Errors never contain the token.
func ReadJoin(userData []byte) (bootstrap.Join, error) {
	j, err := readJoin(userData)
	if err == nil {
		err = j.Validate()
	}
	if err != nil {
		return bootstrap.Join{}, fmt.Errorf("reading user data, %w", err)
	}
	return j, nil
}

func readJoin(userData []byte) (bootstrap.Join, error) {
	parts, err := partsOf("text/plain", userData)
	if err != nil {
		return bootstrap.Join{}, err
	}
	for _, part := range parts {
		if !bytes.HasPrefix(part, []byte("#!")) {
			continue
		}
		files, commands := readScript(string(part))
		for _, command := range commands {
			words := strings.Fields(command)
			switch {
			case len(words) == 4 && words[0] == "kubeadm" && words[1] == "join" && words[2] == "--config":
				return readKubeadmJoin(files, commands, words[3])
			case len(words) == 4 && words[0] == "sh" && strings.HasSuffix(words[1], "/vcluster-join.sh"):
				return readVClusterJoin(parts, files, words[2], words[3])
			}
		}
	}
	return bootstrap.Join{}, ErrNoJoin
}

// partsOf returns the documents in user data, also those in nested messages.
func partsOf(contentType string, content []byte) ([][]byte, error) {
	kind, parameters, err := mime.ParseMediaType(cmp.Or(contentType, "text/plain"))
	if err != nil {
		return nil, errors.New("it has a part whose Content-Type cannot be read")
	}
	if bytes.HasPrefix(content, []byte("MIME-Version:")) || bytes.HasPrefix(content, []byte("Content-Type:")) {
		message, err := mail.ReadMessage(bytes.NewReader(content))
		if err != nil {
			return nil, errors.New("it is not a MIME message")
		}
		body, err := io.ReadAll(message.Body)
		if err != nil {
			return nil, err
		}
		return partsOf(message.Header.Get("Content-Type"), body)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return [][]byte{content}, nil
	}
	var parts [][]byte
	reader := multipart.NewReader(bytes.NewReader(content), parameters["boundary"])
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, errors.New("it is a MIME message that cannot be read")
		}
		decoded := io.Reader(part)
		if part.Header.Get("Content-Transfer-Encoding") == "base64" {
			decoded = base64.NewDecoder(base64.StdEncoding, part)
		}
		text, err := io.ReadAll(decoded)
		if err != nil {
			return nil, errors.New("it has a part that cannot be decoded")
		}
		inner, err := partsOf(part.Header.Get("Content-Type"), text)
		if err != nil {
			return nil, err
		}
		parts = append(parts, inner...)
	}
}

var fileStart = regexp.MustCompile(`cat >"\$NODE_ROOT"(\S+)\) <<'` + bootstrap.JoinScriptEnd + `'$`)

// readScript returns the files that a join script writes and its other lines, with paths as they are on the server.
func readScript(text string) (files map[string]string, commands []string) {
	files = map[string]string{}
	var path string
	for line := range strings.Lines(text) {
		match := fileStart.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		switch {
		case path != "" && line == bootstrap.JoinScriptEnd+"\n":
			path = ""
		case path != "":
			files[path] += line
		case match != nil:
			path = match[1]
		default:
			commands = append(commands, strings.ReplaceAll(strings.TrimSpace(line), `"$NODE_ROOT"`, ""))
		}
	}
	return files, commands
}

// joinConfiguration has the fields of kubeadm's JoinConfiguration that emulated servers support.
type joinConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Discovery  struct {
		BootstrapToken struct {
			Token             string   `json:"token"`
			APIServerEndpoint string   `json:"apiServerEndpoint"`
			CACertHashes      []string `json:"caCertHashes"`
		} `json:"bootstrapToken"`
	} `json:"discovery"`
	NodeRegistration struct {
		Name             string         `json:"name"`
		Taints           []corev1.Taint `json:"taints"`
		KubeletExtraArgs []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"kubeletExtraArgs"`
	} `json:"nodeRegistration"`
}

func readKubeadmJoin(files map[string]string, commands []string, path string) (bootstrap.Join, error) {
	content, written := files[path]
	if !written {
		return bootstrap.Join{}, fmt.Errorf("its join reads %s, which no part writes", path)
	}
	var configuration joinConfiguration
	if err := yaml.UnmarshalStrict([]byte(content), &configuration); err != nil {
		return bootstrap.Join{}, fmt.Errorf("file %s is not a JoinConfiguration: %s", path, withoutValues(err))
	}
	if configuration.APIVersion != "kubeadm.k8s.io/v1beta4" || configuration.Kind != "JoinConfiguration" {
		return bootstrap.Join{}, fmt.Errorf("file %s is a %q of apiVersion %q", path, configuration.Kind, configuration.APIVersion)
	}
	discovery, registration := configuration.Discovery.BootstrapToken, configuration.NodeRegistration
	token, err := bootstrap.ParseToken(discovery.Token)
	if err != nil {
		return bootstrap.Join{}, fmt.Errorf("file %s, %w", path, err)
	}
	j := bootstrap.Join{
		NodeName: registration.Name, APIServerEndpoint: discovery.APIServerEndpoint, CACertHashes: discovery.CACertHashes,
		Token: token, Taints: registration.Taints, Labels: map[string]string{}, KubeletArgs: map[string]string{},
	}
	for _, arg := range registration.KubeletExtraArgs {
		if err := setKubeletArg(&j, arg.Name, arg.Value); err != nil {
			return bootstrap.Join{}, fmt.Errorf("file %s, %w", path, err)
		}
	}
	for _, command := range commands {
		words := strings.Fields(command)
		if len(words) > 2 && strings.HasSuffix(words[1], "/prepare-node.sh") && strings.HasPrefix(words[len(words)-1], "v") {
			j.KubernetesVersion = words[len(words)-1]
		}
	}
	return j, nil
}

// yamlFault matches the position in an error, without the document.
var yamlFault = regexp.MustCompile(`(unknown|duplicate) field "[\w.\[\]]+"|key "\w+" already set|line \d+|field [\w.]+ of type`)

// withoutValues returns the position of an error. Its full text can quote the document, and so a token.
func withoutValues(err error) string {
	if match := yamlFault.FindString(err.Error()); match != "" {
		return match
	}
	return "its fields do not have the expected types"
}

// readVClusterJoin returns the join of a vCluster's script, without fetching vCluster's own script.
func readVClusterJoin(parts [][]byte, files map[string]string, request, ca string) (bootstrap.Join, error) {
	j := bootstrap.Join{Mode: v1alpha1.JoinVCluster, Labels: map[string]string{}, KubeletArgs: map[string]string{}}
	var address string
	if _, err := fmt.Sscanf(files[request], "url = %q", &address); err != nil {
		return bootstrap.Join{}, fmt.Errorf("file %s holds no url", request)
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Path != "/node/join" {
		return bootstrap.Join{}, fmt.Errorf("file %s does not hold the URL of a join script", request)
	}
	j.APIServerEndpoint = parsed.Host
	if j.Token, err = bootstrap.ParseToken(parsed.Query().Get("token")); err != nil {
		return bootstrap.Join{}, fmt.Errorf("file %s, %w", request, err)
	}
	j.CACertificates = []byte(files[ca])
	if j.CACertHashes, err = bootstrap.CACertHashes(j.CACertificates); err != nil {
		return bootstrap.Join{}, fmt.Errorf("file %s, %w", ca, err)
	}
	const environment = "/etc/default/kubelet"
	args, found := strings.CutPrefix(strings.TrimSpace(files[environment]), "KUBELET_EXTRA_ARGS=")
	if !found {
		return bootstrap.Join{}, fmt.Errorf("file %s does not set KUBELET_EXTRA_ARGS", environment)
	}
	for _, arg := range strings.Fields(strings.Trim(args, "'")) {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if err := setKubeletArg(&j, name, value); err != nil {
			return bootstrap.Join{}, fmt.Errorf("file %s, %w", environment, err)
		}
	}
	j.NodeName, err = hostnameIn(parts)
	return j, err
}

// hostnameIn returns the hostname that cloud-init sets: the first one, because ours does not replace the user's.
func hostnameIn(parts [][]byte) (string, error) {
	for _, part := range parts {
		var config struct {
			Hostname json.RawMessage `json:"hostname"`
		}
		if !bytes.HasPrefix(part, []byte("#cloud-config")) || yaml.Unmarshal(part, &config) != nil || len(config.Hostname) == 0 {
			continue
		}
		var name string
		if err := json.Unmarshal(config.Hostname, &name); err != nil {
			return "", errors.New("its hostname is not text")
		}
		return name, nil
	}
	return "", errors.New("it has no hostname")
}

// setKubeletArg sets the field of the join that an argument of the kubelet stands for.
func setKubeletArg(j *bootstrap.Join, name, value string) error {
	switch name {
	case "provider-id":
		j.ProviderID = value
	case "node-labels":
		for pair := range strings.SplitSeq(value, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("kubelet argument %q holds %q, which is not key=value", name, pair)
			}
			j.Labels[key] = value
		}
	case "register-with-taints":
		for part := range strings.SplitSeq(value, ",") {
			key, rest, ok := strings.Cut(part, "=")
			value, effect, also := strings.Cut(rest, ":")
			if !ok || !also {
				return fmt.Errorf("kubelet argument %q holds %q, which is not key=value:effect", name, part)
			}
			j.Taints = append(j.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	default:
		j.KubeletArgs[name] = value
	}
	return nil
}
