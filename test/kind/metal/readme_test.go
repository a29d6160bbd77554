// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const (
	// variable switches the test on: E2E_KIND=1 go test -timeout 15m ./test/kind/metal. KIND_IMAGE is the image of the node; empty means
	// kind's own.
	variable = "E2E_KIND"
	cluster  = "metal3-readme"
	readme   = "../../emulator/README.md"
	section  = "## Three BareMetalHosts on a kind cluster of your own\n"
)

// TestReadme makes a kind cluster with Metal3 beside it, and runs the lines of the rack's README there, which must not be more than
// ten: three hosts become available, and one is provisioned. Then the servers of the reference fleet take their place.
func TestReadme(t *testing.T) {
	if os.Getenv(variable) == "" {
		t.Skipf("%s is not set: it needs Docker, and what make e2e-kind and make images build", variable)
	}
	start := time.Now()
	say := func(format string, args ...any) {
		t.Logf("%4.0fs  %s", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, errors.New("the test has taken ten minutes"))
	defer cancel()
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	k := &kindCluster{t: t, dir: t.TempDir(), bin: bin}
	config := k.create()
	config.Progress = say
	say("kind cluster %s is there", cluster)
	m, err := Up(ctx, config)
	if err != nil {
		t.Fatal(err)
	}

	k.run("docker load --quiet --input " + filepath.Join(bin, "images", "rack.tar"))
	lines, rest := tenLines(t)
	lines = strings.Replace(lines, "http://kind-control-plane:6385", m.Ironic, 1)
	k.run("set -e; kubectl config set-context --current --namespace " + stack.HostsNamespace + "\n" + lines)
	say("the lines of the README have run")
	k.run(rest)
	say("the three hosts of the README are available")
	k.run(fmt.Sprintf(`kubectl patch baremetalhost server-1 --type merge --patch '{"spec": {"image": {"url": %q, "checksum": %q, `+
		`"checksumType": "sha256", "format": "qcow2"}}}'`, m.OSImage.URL, m.OSImage.Checksum))
	k.run("kubectl wait --for=jsonpath='{.status.provisioning.state}'=provisioned --timeout=3m baremetalhost server-1")
	say("one of them is provisioned")
	activity := k.run("curl --silent http://127.0.0.1:8090/v1/servers/server-1")
	if !strings.Contains(activity, "running the image from "+m.OSImage.URL) {
		t.Errorf("the rack says of server-1: %s", activity)
	}
	k.run("kubectl delete --timeout=3m baremetalhost server-1 server-2 server-3; docker rm --force rack")
	say("they are deleted")

	if config.Servers, err = fleet.Reference(); err != nil {
		t.Fatal(err)
	}
	if m, err = Up(ctx, config); err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitAvailable(ctx); err != nil {
		t.Fatal(err)
	}
	say("%d servers of the reference fleet are available", len(config.Servers))
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := config.Client.List(ctx, hosts, client.InNamespace(stack.HostsNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts.Items {
		if host.Labels["datacenter"] == "" || host.Status.HardwareDetails == nil || host.Status.HardwareDetails.CPU.Count < 32 {
			t.Errorf("host %s has labels %v, hardware %+v", host.Name, host.Labels, host.Status.HardwareDetails)
		}
	}
}

// tenLines are the commands of the section in the README, and those after them that wait.
func tenLines(t *testing.T) (lines, wait string) {
	t.Helper()
	content, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(content), section)
	blocks := regexp.MustCompile("(?s)```(?:bash|console)\n(.*?)```").FindAllStringSubmatch(after, 2)
	if !found || len(blocks) != 2 {
		t.Fatalf("%s has no section %q with two blocks of commands", readme, section)
	}
	if n := strings.Count(blocks[0][1], "\n"); n > 10 {
		t.Errorf("the first block of the section has %d lines, and ten are what it says", n)
	}
	return blocks[0][1], blocks[1][1]
}

func TestTenLines(t *testing.T) {
	lines, wait := tenLines(t)
	for _, commands := range []string{lines, wait} {
		command := exec.CommandContext(t.Context(), "bash", "-n")
		command.Stdin = strings.NewReader(commands)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("these are no commands: %v: %s\n%s", err, output, commands)
		}
	}
}

// kindCluster is a cluster of this test.
type kindCluster struct {
	t        *testing.T
	dir, bin string
}

// create makes the cluster. It fails if there is one of the name.
func (k *kindCluster) create() Config {
	k.t.Helper()
	image := ""
	if name := os.Getenv("KIND_IMAGE"); name != "" {
		image = "--image " + name
	}
	k.run("kind create cluster --wait 3m --name " + cluster + " " + image)
	k.t.Cleanup(k.remove)
	rest, err := clientcmd.BuildConfigFromFlags("", filepath.Join(k.dir, "kubeconfig"))
	if err != nil {
		k.t.Fatal(err)
	}
	c, err := client.New(rest, client.Options{Scheme: env.Scheme()})
	if err != nil {
		k.t.Fatal(err)
	}
	return Config{
		Cluster: cluster, Kubeconfig: []byte(k.run("kind get kubeconfig --internal --name " + cluster)), Client: c, Bin: k.bin,
		Dir: filepath.Join(k.dir, "metal"),
	}
}

// run runs commands, and returns their output.
func (k *kindCluster) run(commands string) string {
	k.t.Helper()
	command := exec.Command("bash", "-c", commands)
	command.Dir = k.dir
	command.Env = append(os.Environ(), "PATH="+k.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(k.dir, "kubeconfig"))
	var problems strings.Builder
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		k.t.Fatalf("%s: %v\n%s%s", commands, err, output, problems.String())
	}
	return string(output)
}

func (k *kindCluster) remove() {
	ctx := context.Background()
	if k.t.Failed() {
		for _, container := range []string{Metal3Container(cluster), RackContainer(cluster), "rack"} {
			k.t.Logf("the log of container %s ends with:\n%s", container, docker.Tail(ctx, container, 2*logTail))
		}
	}
	if err := Down(ctx, cluster); err != nil {
		k.t.Error(err)
	}
	k.run("docker rm --force rack 2>/dev/null; kind delete cluster --name " + cluster)
}
