// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet reads fleet files: the servers that a sandbox is to emulate. A fleet file is YAML:
//
//	apiVersion: sandbox.karpenter.metal3.io/v1alpha1
//	kind: Fleet
//	servers:
//	- name: gpu
//	  count: 2                      # optional: makes gpu-01 and gpu-02
//	  architecture: amd64           # optional: amd64 (the default) or arm64
//	  labels: {gpu-model: h100, rack: r1}
//	  capacity: {cpu: 64, memory: 512Gi, nvidia.com/gpu: 8}
//	  devices:                      # optional: what DRA drivers publish on it, as in a NodeType
//	  - {driver: gpu.example.com, count: 8, capacity: {memory: 80Gi}}
package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// APIVersion is the only version of fleet files.
	APIVersion = "sandbox.karpenter.metal3.io/v1alpha1"
	// Kind is the kind of a fleet file.
	Kind = "Fleet"

	// AMD64 and ARM64 are the architectures, as in kubernetes.io/arch. AMD64 is the default.
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// A Server is one server to emulate.
type Server struct {
	// Name is a DNS label, unique in the fleet, and the name of the BareMetalHost.
	Name string
	// Architecture of its processors, AMD64 or ARM64; AMD64 if empty.
	Architecture string
	// Labels are those of the BareMetalHost; may be nil.
	Labels map[string]string
	// Capacity is what the server's hardware has: cpu in cores, memory in bytes, and whole devices.
	Capacity corev1.ResourceList
	// Devices that DRA drivers publish on the server; may be nil.
	Devices []v1alpha1.NodeTypeDevice
}

// document is the file as it is written. Scalars are kept as text, so that "cpu: 64" and "cpu: '64'" are the same.
type document struct {
	APIVersion string     `yaml:"apiVersion"`
	Kind       string     `yaml:"kind"`
	Servers    []template `yaml:"servers"`
}

type template struct {
	Name         string            `yaml:"name"`
	Count        *int              `yaml:"count"`
	Architecture string            `yaml:"architecture"`
	Labels       map[string]string `yaml:"labels"`
	Capacity     map[string]string `yaml:"capacity"`
	Devices      []map[string]any  `yaml:"devices"`
}

// Load reads a fleet file. Its errors are one sentence that names the file, and the line or the field.
func Load(path string) ([]Server, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the fleet file, %w", err)
	}
	return Parse(path, content)
}

// Reference returns the servers of the reference fleet.
func Reference() ([]Server, error) {
	content, err := examples.Read(examples.FleetFile)
	if err != nil {
		return nil, err
	}
	return Parse(examples.FleetFile, content)
}

// Parse reads the content of a fleet file; name is for errors.
func Parse(name string, content []byte) ([]Server, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var parsed document
	if err := decoder.Decode(&parsed); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("fleet file %s: is empty; it must have apiVersion %s, kind %s and servers", name, APIVersion, Kind)
		}
		return nil, fmt.Errorf("fleet file %s: %s", name, plain(err))
	}
	if err := decoder.Decode(new(document)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("fleet file %s: holds more than one YAML document; put all servers into one", name)
	}
	servers, err := parsed.expand()
	if err != nil {
		return nil, fmt.Errorf("fleet file %s: %w", name, err)
	}
	return servers, nil
}

func (d document) expand() ([]Server, error) {
	if d.APIVersion != APIVersion || d.Kind != Kind {
		return nil, fmt.Errorf("apiVersion %q and kind %q are not those of a fleet file; write apiVersion: %s, kind: %s",
			d.APIVersion, d.Kind, APIVersion, Kind)
	}
	if len(d.Servers) == 0 {
		return nil, errors.New("servers is empty; a fleet has at least one server")
	}
	var servers []Server
	seen := map[string]int{}
	for i, template := range d.Servers {
		if err := template.validate(); err != nil {
			return nil, fmt.Errorf("servers[%d].%w", i, err)
		}
		for _, server := range template.servers() {
			if first, ok := seen[server.Name]; ok {
				return nil, fmt.Errorf("servers[%d].name: %q is already the name of a server of servers[%d]; names are unique", i, server.Name, first)
			}
			seen[server.Name] = i
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// servers makes the servers of a valid template.
func (t template) servers() []Server {
	names := t.names()
	servers := make([]Server, 0, len(names))
	for _, name := range names {
		servers = append(servers, t.server(name))
	}
	return servers
}

// names of the servers, the longest last.
func (t template) names() []string {
	if t.Count == nil {
		return []string{t.Name}
	}
	width := max(2, len(fmt.Sprint(*t.Count)))
	names := make([]string, 0, *t.Count)
	for n := 1; n <= *t.Count; n++ {
		names = append(names, fmt.Sprintf("%s-%0*d", t.Name, width, n))
	}
	return names
}

func (t template) server(name string) Server {
	capacity := corev1.ResourceList{}
	for key, value := range t.Capacity {
		capacity[corev1.ResourceName(key)] = resource.MustParse(value)
	}
	devices, _ := t.devices() // they are validated
	return Server{Name: name, Architecture: t.Architecture, Labels: maps.Clone(t.Labels), Capacity: capacity, Devices: devices}
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type fleet\.(\w+)`)

// plain converts the decoder's errors to one sentence with the names of the file.
func plain(err error) string {
	var typeError *yaml.TypeError
	if !errors.As(err, &typeError) {
		return strings.TrimPrefix(err.Error(), "yaml: ")
	}
	known := map[string]string{
		"document": "apiVersion, kind, servers",
		"template": "name, count, architecture, labels, capacity, devices",
	}
	complaints := make([]string, 0, len(typeError.Errors))
	for _, complaint := range typeError.Errors {
		if match := unknownField.FindStringSubmatch(complaint); match != nil {
			complaint = strings.Replace(complaint, match[0], fmt.Sprintf("unknown field %q; known are %s", match[1], known[match[2]]), 1)
		}
		complaints = append(complaints, complaint)
	}
	return strings.Join(slices.Compact(complaints), "; ")
}
