// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ErrNoJoin is returned for user data that is a valid cloud-config document without a kubeadm join in it.
var ErrNoJoin = errors.New("its commands hold no \"kubeadm join --config FILE\"")

// bootDocument is how a booting server reads a cloud-config document: other keys, and files and commands that are
// not ours, are somebody else's business.
type bootDocument struct {
	Hostname   json.RawMessage   `json:"hostname"`
	WriteFiles []bootFile        `json:"write_files"`
	RunCmd     []json.RawMessage `json:"runcmd"`
}

// bootFile is a file as far as it matters which one it is. Of the others nothing is looked at: what cloud-init makes
// of, say, permissions that are a number, is not our business.
type bootFile struct {
	Path     json.RawMessage `json:"path"`
	Encoding string          `json:"encoding"`
	Content  json.RawMessage `json:"content"`
}

// ParseUserData is the inverse of UserData: it finds the join that a server booted with this user data would make.
// Like cloud-init, it follows what the commands say, so the file's path and the rest of the document do not matter.
// It is strict with the JoinConfiguration: what it does not know, an emulated server would silently not do.
// ErrNoJoin is returned, wrapped, for a document that joins nothing. Errors never repeat the token.
func ParseUserData(userData []byte) (Join, error) {
	j, err := parseUserData(userData)
	if err != nil {
		return Join{}, fmt.Errorf("reading user data, %w", err)
	}
	return j, nil
}

func parseUserData(userData []byte) (Join, error) {
	header, body, _ := bytes.Cut(userData, []byte("\n"))
	if string(bytes.TrimRight(header, " \t\r")) != cloudConfigHeader {
		return Join{}, fmt.Errorf("its first line must be %q", cloudConfigHeader)
	}
	document, err := yaml.YAMLToJSONStrict(body)
	if err != nil {
		return Join{}, errors.New("it is not valid YAML" + position(err))
	}
	var boot bootDocument
	if err := json.Unmarshal(document, &boot); err != nil {
		return Join{}, fmt.Errorf("it is not a cloud-config document: %s", fieldOf(err))
	}
	if fetchesScript(boot.RunCmd) {
		j, err := parseVCluster(boot)
		if err == nil {
			err = j.Validate()
		}
		if err != nil {
			return Join{}, err
		}
		return j, nil
	}
	path, err := joinPath(boot.RunCmd)
	if err != nil {
		return Join{}, err
	}
	content, err := fileAt(boot.WriteFiles, path)
	if err != nil {
		return Join{}, err
	}
	configuration, err := findJoinConfiguration(content)
	if err != nil {
		return Join{}, fmt.Errorf("file %s, %w", path, err)
	}
	j, err := configuration.join()
	if err != nil {
		return Join{}, fmt.Errorf("file %s, %w", path, err)
	}
	j.KubernetesVersion = versionToInstall(boot.RunCmd)
	if err := j.Validate(); err != nil {
		return Join{}, fmt.Errorf("file %s, %w", path, err)
	}
	return j, nil
}

// wordsOf returns the words of a command, which is a list of words or a line for the shell; nil if it is neither.
func wordsOf(command json.RawMessage) []string {
	var words []string
	var line string
	if json.Unmarshal(command, &words) == nil {
		return words
	}
	if json.Unmarshal(command, &line) == nil {
		return strings.Fields(line)
	}
	return nil
}

// versionToInstall returns the version that our script is to install, empty if it is not run or not told one.
func versionToInstall(commands []json.RawMessage) string {
	for _, command := range commands {
		if words := wordsOf(command); len(words) == 3 && words[1] == prepareScriptPath {
			return words[2]
		}
	}
	return ""
}

// fetchesScript says whether the commands join by a vCluster's script.
func fetchesScript(commands []json.RawMessage) bool {
	return slices.ContainsFunc(commands, func(command json.RawMessage) bool {
		return slices.Contains(wordsOf(command), vclusterScriptPath)
	})
}

// joinPath returns the configuration file of the one kubeadm join among the commands.
func joinPath(commands []json.RawMessage) (string, error) {
	path := ""
	for _, command := range commands {
		words := wordsOf(command)
		if len(words) < 2 || words[0] != "kubeadm" || words[1] != "join" {
			continue
		}
		if path != "" {
			return "", errors.New("its commands hold more than one kubeadm join")
		}
		at := slices.Index(words, "--config")
		if at < 0 || at+1 >= len(words) || words[at+1] == "" {
			return "", errors.New("its kubeadm join has no --config FILE")
		}
		path = words[at+1]
	}
	if path == "" {
		return "", ErrNoJoin
	}
	return path, nil
}

// fileAt returns the content of the file; as in cloud-init, a later entry overwrites an earlier one.
func fileAt(files []bootFile, path string) ([]byte, error) {
	for _, file := range slices.Backward(files) {
		var itsPath, content string
		if json.Unmarshal(file.Path, &itsPath) != nil || itsPath != path {
			continue
		}
		if file.Encoding != "" && file.Encoding != "text/plain" {
			return nil, fmt.Errorf("file %s has encoding %q; only plain text is supported", path, file.Encoding)
		}
		if err := json.Unmarshal(file.Content, &content); err != nil {
			return nil, fmt.Errorf("file %s has a content that is not text", path)
		}
		return []byte(content), nil
	}
	return nil, fmt.Errorf("its join reads %s, which it does not write", path)
}

// findJoinConfiguration returns the one JoinConfiguration among the documents of a file.
func findJoinConfiguration(content []byte) (joinConfiguration, error) {
	var found []joinConfiguration
	for document := range strings.SplitSeq("\n"+string(content), "\n---") {
		var kind struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return joinConfiguration{}, errors.New("is not valid YAML" + position(err))
		}
		if kind.Kind != joinConfigurationKind {
			continue
		}
		if kind.APIVersion != kubeadmAPIVersion {
			return joinConfiguration{}, fmt.Errorf("JoinConfiguration has apiVersion %q; only %s is supported", kind.APIVersion, kubeadmAPIVersion)
		}
		var configuration joinConfiguration
		if err := yaml.UnmarshalStrict([]byte(document), &configuration); err != nil {
			return joinConfiguration{}, fmt.Errorf("JoinConfiguration is not valid: %s", fieldOf(err))
		}
		found = append(found, configuration)
	}
	if len(found) != 1 {
		return joinConfiguration{}, fmt.Errorf("holds %d JoinConfigurations instead of one", len(found))
	}
	return found[0], nil
}
