// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const (
	// suiteVariable selects tests of the suite, as the flag -run of go test does. "." runs all that can run here, which
	// takes a quarter of an hour and more.
	suiteVariable = "E2E_METAL_SUITE"
	// suiteDefault are the tests that run each time: the choice among NodeTypes, the secrets of a server after its node
	// has joined, and two that need no server.
	suiteDefault = "^(TestCapacityCPUPodNeverGetsGPUServer|TestReleaseRevokesJoinToken|TestGiveBackDefaults|TestWebhookDenies)$"
	// suiteTimeout bounds each wait of the suite.
	suiteTimeout = 4 * time.Minute
)

// TestSuite runs the black-box suite, test/e2e, on servers that a real Ironic installs and that really boot. The suite
// is given two kubeconfigs, the manifests of the fleet with an image that there is, and the name of an image for its
// pods, as a user would give it theirs (docs/testing.md). It is a process of its own.
func TestSuite(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	requirePrerequisites(t, bin)
	dir := t.TempDir()
	servers := referenceServers(t)
	w := newFixture(t, setup{bin: bin, dir: dir, rack: writeServers(t, filepath.Join(dir, "reference.yaml"), servers)})
	stop := w.keepJournal(t)
	defer stop()
	w.journal.logf("== the platform team registers the servers of the reference fleet")
	for i, server := range w.Rack.Servers {
		if err := w.Register(t.Context(), server, servers[i].Labels); err != nil {
			t.Fatal(err)
		}
	}
	w.untilFleetReady(t)
	manifests := w.writeManifests(t, w.Media.Add("linux.qcow2", []byte("the disk image of the suite\n")))

	tests := cmp.Or(os.Getenv(suiteVariable), suiteDefault)
	w.journal.logf("== test/e2e, with its tests %s", tests)
	ctx, done := w.Context(t.Context())
	defer done()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout=60m", "-run="+tests, "./test/e2e")
	command.Dir = filepath.Dir(bin)
	command.Env = append(os.Environ(),
		"E2E_MANAGEMENT_KUBECONFIG="+w.Kubeconfig, "E2E_TENANT_KUBECONFIG="+w.tenant.Kubeconfig,
		"E2E_FLEET="+manifests, "E2E_POD_IMAGE="+images.Reference(images.Workload), "E2E_TIMEOUT="+suiteTimeout.String())
	// Ends the test binary too, if a part of the chain fails meanwhile.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	output := &bytes.Buffer{}
	command.Stdout = io.MultiWriter(output, t.Output())
	command.Stderr = command.Stdout
	if err := command.Run(); err != nil {
		t.Fatalf("test/e2e has failed, %v", err)
	}
	passed := bytes.Count(output.Bytes(), []byte("\n--- PASS: "))
	w.journal.logf("== %d tests have passed, %d were skipped", passed,
		bytes.Count(output.Bytes(), []byte("\n--- SKIP: ")))
	if passed == 0 {
		t.Errorf("no test of test/e2e was run: %s is %q", suiteVariable, tests)
	}
	w.leftovers.noteLinks(t, w.network.Name)
}

// referenceServers are those of the reference fleet.
func referenceServers(t *testing.T) []fleet.Server {
	t.Helper()
	content, err := examples.Read(examples.FleetFile)
	if err != nil {
		t.Fatal(err)
	}
	servers, err := fleet.Parse(examples.FleetFile, content)
	if err != nil {
		t.Fatal(err)
	}
	return servers
}

// writeServers writes the scenario of a rack whose servers have the hardware of the fleet.
func writeServers(t *testing.T, path string, servers []fleet.Server) string {
	t.Helper()
	rack := scenario.Scenario{}
	for _, server := range servers {
		has := inventory.Hardware{
			Manufacturer: "Acme", MemoryGiB: int(server.Capacity.Memory().Value() >> 30),
			Processors: []inventory.Processor{{Cores: int(server.Capacity.Cpu().Value())}},
			NICs:       []inventory.NIC{{}}, Disks: []inventory.Disk{{SizeGB: 960, Kind: inventory.NVMe}},
		}
		if count := server.Capacity.Name(gpu, "").Value(); count > 0 {
			has.GPUs = []inventory.GPU{{Count: int(count), Manufacturer: "NVIDIA", Model: server.Labels["gpu-model"]}}
		}
		described := scenario.Server{Name: server.Name, Hardware: &has}
		described.BMC.Username, described.BMC.Password = "admin-"+server.Name, "secret of "+server.Name
		rack.Servers = append(rack.Servers, described)
	}
	content, err := yaml.Marshal(rack)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, path, content, 0o600)
}

// writeManifests writes the manifests of the reference fleet with the image and the network of this test.
func (w *fixture) writeManifests(t *testing.T, image stack.Image) (folder string) {
	t.Helper()
	folder = filepath.Join(w.dir, "fleet")
	for _, file := range []string{examples.ManagementFile, examples.TenantFile} {
		objects, err := examples.Objects(file)
		if err != nil {
			t.Fatal(err)
		}
		content := &bytes.Buffer{}
		for _, object := range objects {
			switch object.GetKind() {
			case "OSImage":
				setProperty(t, object, v1alpha1.PropertyImageURL, image.URL)
				setProperty(t, object, v1alpha1.PropertyImageChecksum, image.Checksum)
			case "NodeProvider":
				setProperty(t, object, v1alpha1.PropertyNetworkCIDR, w.network.Address.String())
			}
			document, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			content.WriteString("---\n")
			content.Write(document)
		}
		writeFile(t, filepath.Join(folder, path.Base(file)), content.Bytes(), 0o600)
	}
	return folder
}

func setProperty(t *testing.T, object *unstructured.Unstructured, key, value string) {
	t.Helper()
	if err := unstructured.SetNestedField(object.Object, value, "spec", "properties", key); err != nil {
		t.Fatalf("setting property %s of %s %s, %v", key, object.GetKind(), object.GetName(), err)
	}
}
