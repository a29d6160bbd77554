// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// slurmJob runs on each of two nodes, once both have registered themselves. It is a command of the server with slurmctld.
const slurmJob = "until srun --nodes=2 hostname >/var/log/slurm-job; do sleep 1; done"

// TestSlurm follows docs/schedulers.md: slurmctld and two nodes of Slurm are stand-alone Machines, and run a job. Debian's packages come
// from a mirror.
func TestSlurm(t *testing.T) {
	w := &stackFixture{ids: map[string]string{}}
	w.fixture = newFixture(t, missingServer, func() error { return stack.Missing(bin) })
	w.journal = newJournal(t, w.logf)
	w.startRack(t, "chain-rack.yaml")
	defer w.keepJournal(t)()

	w.logf("== the platform team registers servers")
	image, _ := w.serveImages(t, container)
	w.createFleet(t, []v1alpha1.NodeTypeTemplate{nodeType(nodeTypeName, "cpu", "64", "memory", "512Gi", gpu, "2")}, image)
	for _, server := range w.Rack.Servers {
		if err := w.Register(t.Context(), server, map[string]string{kindLabel: nodeTypeName}); err != nil {
			t.Fatal(err)
		}
	}
	w.untilFleetReady(t)

	w.logf("== the Machines of docs/schedulers.md are created, and another one")
	names := w.createSlurm(t)
	for _, name := range names {
		w.untilPhase(t, name, v1alpha1.MachineProvisioned)
	}
	controller := w.hostOf(t, names[0])
	w.until(t, "Slurm to run a job on two nodes", func(context.Context) error {
		output, err := os.ReadFile(filepath.Join(w.dir, "servers", controller, "disk", "upper", "var", "log", "slurm-job"))
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		slices.Sort(lines)
		if err == nil && !slices.Equal(lines, []string{"slurm-1", "slurm-2"}) {
			err = fmt.Errorf("its output is %q", output)
		}
		return err
	})
	w.logf("Slurm has run a job on %s", strings.Join(names[1:], " and "))

	w.logf("== the Machines are deleted; the servers are cleaned and available")
	var hosts []string
	for _, name := range names {
		hosts = append(hosts, w.hostOf(t, name))
		if err := w.Client.Delete(t.Context(), newMachine(name, "", nil)); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		w.untilGone(t, name)
		w.untilState(t, hosts[i], bmov1alpha1.StateAvailable)
		w.checkErased(t, hosts[i])
	}
}

// createSlurm creates the Machines of the page, and a second node like the first, and returns their names. The user data of each is
// completed by what the image of a user has: the mirror, and MUNGE's key.
func (w *stackFixture) createSlurm(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(filepath.Dir(bin), "docs", "schedulers.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, objects, _ := bytes.Cut(page, []byte("# slurm.yaml\n"))
	objects, _, found := bytes.Cut(objects, []byte("```\n"))
	if !found {
		t.Fatal("docs/schedulers.md has no slurm.yaml")
	}
	const onPage = "10.20.0.10"
	address := w.network.Server(200).Addr().String()
	text := strings.NewReplacer(onPage, address, "h100-8x", nodeTypeName, "acme", stack.MachinesNamespace).Replace(string(objects))
	documents := strings.Split(text, "---\n")
	m := w.startMirror(t)
	key := map[string]any{
		"path": "/etc/munge/munge.key", "permissions": "0400", "encoding": "b64",
		"content": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("not so secret "), 10)),
	}
	for _, document := range append(documents, strings.ReplaceAll(documents[len(documents)-1], "slurm-1", "slurm-2")) {
		machine := &v1alpha1.Machine{}
		if err := yaml.UnmarshalStrict([]byte(document), machine); err != nil {
			t.Fatal(err)
		}
		config := map[string]any{}
		if err := yaml.Unmarshal([]byte(machine.Spec.Properties[v1alpha1.PropertyUserData]), &config); err != nil {
			t.Fatal(err)
		}
		files := append(config["write_files"].([]any), key, map[string]any{"path": mirrorKey, "content": string(m.key)})
		maps.Copy(config, map[string]any{
			"write_files": files,
			"ca_certs":    map[string]any{"trusted": []string{string(m.authority)}},
			"apt":         map[string]any{"preserve_sources_list": false, "sources_list": "deb " + m.url + "/debian bookworm main\n"},
		})
		if len(names) == 0 {
			config["runcmd"] = []string{slurmJob}
		}
		content, err := yaml.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		machine.Spec.Properties[v1alpha1.PropertyUserData] = "#cloud-config\n" + string(content)
		w.create(t, w.Client, machine)
		names = append(names, machine.Name)
	}
	return names
}
