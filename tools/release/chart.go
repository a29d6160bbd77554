// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"
)

// metadata are the fields of Chart.yaml that are used.
type metadata struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion"`
}

// writeCharts writes each chart as a package, and as a registry holds it, and its definitions as one file.
func (r *release) writeCharts() error {
	folders, err := filepath.Glob(filepath.Join(r.repository, "charts", "*", chartFile))
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		return fmt.Errorf("there are none in %s", r.repository)
	}
	address, stop, err := serveRegistry(loopback)
	if err != nil {
		return err
	}
	defer stop()
	for _, folder := range folders {
		if err := r.writeChart(filepath.Dir(folder), address); err != nil {
			return fmt.Errorf("packing %s, %w", filepath.Dir(folder), err)
		}
	}
	return nil
}

const chartFile = "Chart.yaml"

func (r *release) writeChart(folder, address string) error {
	content, err := os.ReadFile(filepath.Join(folder, chartFile))
	if err != nil {
		return err
	}
	chart := metadata{}
	if err := yaml.Unmarshal(content, &chart); err != nil {
		return err
	}
	if chart.AppVersion != r.tag {
		return fmt.Errorf("its appVersion is %s and not %s", chart.AppVersion, r.tag)
	}
	files, err := filesIn(folder, chart.Name)
	if err != nil {
		return err
	}
	// Helm writes it first, so that who lists charts reads no further.
	first := slices.IndexFunc(files, func(f file) bool { return f.name == chart.Name+"/"+chartFile })
	files = slices.Concat(files[first:first+1], files[:first], files[first+1:])
	content, err = compressed(files, r.created)
	if err != nil {
		return err
	}
	archive := chart.Name + "-" + chart.Version + ".tgz"
	if err := r.file(archive, content); err != nil {
		return err
	}
	if err := r.writeDefinitions(chart.Name, files); err != nil {
		return err
	}
	return r.store(chart, filepath.Join(r.dir, archive), address)
}

// writeDefinitions writes the CRDs of a chart, for who applies them without Helm.
func (r *release) writeDefinitions(chart string, files []file) error {
	var all bytes.Buffer
	for _, file := range files {
		if strings.HasPrefix(file.name, chart+"/"+generatedCRDsPath+"/") {
			all.WriteString("---\n")
			all.Write(file.content)
		}
	}
	if all.Len() == 0 {
		return fmt.Errorf("there are no definitions in %s", generatedCRDsPath)
	}
	return r.file(chart+"-crds.yaml", all.Bytes())
}

// store has Helm push a package to an empty registry, and writes what is there then: so its digest, which is signed, is known before the
// release is in any registry. Helm writes into it when the file was modified, in the time zone that it runs in.
func (r *release) store(chart metadata, archive, address string) error {
	if err := os.Chtimes(archive, r.created, r.created); err != nil {
		return err
	}
	home, err := os.MkdirTemp(r.scratch, "helm-")
	if err != nil {
		return err
	}
	command := exec.Command(r.helm, "push", archive, "oci://"+address+"/"+strings.TrimSuffix(chartsPath, "/"), "--plain-http")
	command.Env = []string{"TZ=UTC", "HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("helm push, %w\n%s", err, output)
	}
	pushed, err := name.NewTag(address + "/" + chartsPath + chart.Name + ":" + chart.Version)
	if err != nil {
		return err
	}
	image, err := remote.Image(pushed)
	if err != nil {
		return err
	}
	reference := strings.TrimSuffix(r.registry, "/") + "/" + chartsPath + chart.Name + ":" + chart.Version
	put := func(images layout.Path, name layout.Option) error { return images.AppendImage(image, name) }
	content, err := archiveOf(filepath.Join(home, "layout"), reference, chart.Version, r.created, put)
	if err != nil {
		return err
	}
	file := chart.Name + archiveSuffix
	if err := r.file(file, content); err != nil {
		return err
	}
	stored, err := openStored(filepath.Join(r.dir, file), r.scratch)
	if err != nil {
		return err
	}
	r.stored = append(r.stored, stored)
	return nil
}

// isChart returns whether it is what Helm pushes.
func (s *stored) isChart() (bool, error) {
	if s.descriptor.MediaType.IsIndex() {
		return false, nil
	}
	image, err := s.layout.Image(s.descriptor.Digest)
	if err != nil {
		return false, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return false, err
	}
	return manifest.Config.MediaType == helmConfig, nil
}

// loopback is an address with a port that is free.
const loopback = "127.0.0.1:0"

// serveRegistry starts an empty registry in memory, and returns where it listens.
func serveRegistry(listen string) (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}
