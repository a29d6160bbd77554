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
	var platforms []map[string]any
	for _, file := range programs {
		described, err := r.writePluginArchive(command, filepath.Base(filepath.Dir(file)), file, licence)
		if err != nil {
			return fmt.Errorf("packing %s, %w", file, err)
		}
		platforms = append(platforms, described)
	}
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]string{"name": plugin},
		"spec": map[string]any{
			"version": r.tag, "homepage": r.source, "shortDescription": description, "platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	return r.file(command+".krew.yaml", manifest)
}

// writePluginArchive writes the archive of a program, and returns what krew's manifest says of it.
func (r *release) writePluginArchive(command, platform, path string, licence []byte) (map[string]any, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	program, err := r.program(content)
	if err != nil {
		return nil, err
	}
	if err := r.writeBills(command+"-"+platform, program); err != nil {
		return nil, err
	}
	archive, err := compressed([]file{{"LICENSE", 0o644, licence}, {command, 0o755, content}}, r.created)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s-%s.tar.gz", command, r.tag, platform)
	system, architecture, _ := strings.Cut(platform, "-")
	return map[string]any{
		"selector": map[string]any{"matchLabels": map[string]string{"os": system, "arch": architecture}},
		"uri":      r.source + "/releases/download/" + r.tag + "/" + name, "sha256": digest(archive), "bin": command,
	}, r.file(name, archive)
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
