// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// pluginPrefix is what kubectl's plugins are named.
const pluginPrefix = "kubectl-"

// The manifest of krew, with the fields that are used.
type (
	krewPlugin struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       krewSpec          `json:"spec"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		URI    string `json:"uri"`
		SHA256 string `json:"sha256"`
		Bin    string `json:"bin"`
	}
)

// writePlugins writes archives of each plugin of kubectl, its manifest of krew, and the bills of materials of its programs.
func (r *release) writePlugins() error {
	for _, folder := range r.plugins {
		if err := r.writePlugin(folder); err != nil {
			return fmt.Errorf("packing %s, %w", folder, err)
		}
	}
	return nil
}

func (r *release) writePlugin(folder string) error {
	command := path.Base(folder)
	plugin, is := strings.CutPrefix(command, pluginPrefix)
	if !is {
		return fmt.Errorf("kubectl's plugins are named %s*", pluginPrefix)
	}
	description, err := synopsis(filepath.Join(r.repository, folder))
	if err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(r.repository, "LICENSE"))
	if err != nil {
		return err
	}
	programs, err := filepath.Glob(filepath.Join(r.programs, "*", command))
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return fmt.Errorf("there is no program in %s", r.programs)
	}
	krew := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": plugin}, Spec: krewSpec{Version: r.tag, Homepage: r.source, ShortDescription: description}}
	for _, file := range programs {
		platform := filepath.Base(filepath.Dir(file))
		one, err := r.writePluginArchive(command, platform, file, licence)
		if err != nil {
			return fmt.Errorf("packing %s, %w", file, err)
		}
		krew.Spec.Platforms = append(krew.Spec.Platforms, one)
	}
	manifest, err := yaml.Marshal(krew)
	if err != nil {
		return err
	}
	return r.file(command+".krew.yaml", manifest)
}

func (r *release) writePluginArchive(command, platform, path string, licence []byte) (krewPlatform, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return krewPlatform{}, err
	}
	program, err := r.program(content)
	if err != nil {
		return krewPlatform{}, err
	}
	if err := r.writeBills(command+"-"+platform, program); err != nil {
		return krewPlatform{}, err
	}
	archive, err := tarball([]file{{"LICENSE", 0o644, licence}, {command, 0o755, content}}, r.created)
	if err != nil {
		return krewPlatform{}, err
	}
	name := fmt.Sprintf("%s-%s-%s.tar.gz", command, r.tag, platform)
	if err := r.file(name, archive); err != nil {
		return krewPlatform{}, err
	}
	one := krewPlatform{URI: r.source + "/releases/download/" + r.tag + "/" + name, SHA256: digest(archive), Bin: command}
	system, architecture, _ := strings.Cut(platform, "-")
	one.Selector.MatchLabels = map[string]string{"os": system, "arch": architecture}
	return one, nil
}

// synopsis is what the comment of a command says in one sentence, without the name of the command.
func synopsis(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return "", err
	}
	for _, name := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", err
		}
		if text := new(doc.Package).Synopsis(parsed.Doc.Text()); text != "" {
			return strings.TrimPrefix(text, "Command "+filepath.Base(folder)+" "), nil
		}
	}
	return "", fmt.Errorf("no file in %s says what the command does", folder)
}
