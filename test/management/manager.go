// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Manager is the manager, running as a process.
type Manager struct {
	command *exec.Cmd
	metrics string
	stop    func() error
	killed  bool
}

// Kill kills it before the test ends, in the middle of whatever it does.
func (m *Manager) Kill(t testing.TB) {
	t.Helper()
	m.killed = true
	if err := m.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.stop() // the error is that it was killed
}

// Stop stops it before the test ends.
func (m *Manager) Stop(t testing.TB) {
	t.Helper()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}

// StartManager starts bin/manager and waits until it answers. It is stopped when the test ends, and the end of its log
// is shown if the test has failed. environment has additional environment variables.
func (c *Cluster) StartManager(t testing.TB, environment ...string) *Manager {
	t.Helper()
	return c.start(t, "manager", environment, "--leader-elect=false", "--kube-api-qps=100000", "--kube-api-burst=100000",
		"--health-probe-bind-address=0")
}

// StartProvider starts bin/provider for the tenant, which is in the same cluster, and waits until it answers. It is stopped when the test
// ends.
func (c *Cluster) StartProvider(t testing.TB) *Manager {
	t.Helper()
	c.Grant(t, TenantNamespace, "provider-management.yaml", "provider-tenant.yaml", "provider-dra-management.yaml", "provider-dra-tenant.yaml")
	kubeconfig := c.Kubeconfig(t, "karpenter-metal3-provider")
	return c.run(t, "provider", nil, "--namespace", TenantNamespace, "--tenant-cluster", "tenant", "--tenant-kubeconfig", kubeconfig,
		"--tenant-allow-unsafe-kubeconfig", "--management-kubeconfig", kubeconfig)
}

// start starts the manager or the webhook with its rights in config/rbac. environment has additional environment variables.
func (c *Cluster) start(t testing.TB, name string, environment []string, flags ...string) *Manager {
	t.Helper()
	c.Grant(t, TenantNamespace, name+".yaml")
	return c.run(t, name, environment,
		append([]string{"--kubeconfig", c.Kubeconfig(t, "karpenter-metal3-"+name), "--metrics-secure=false"}, flags...)...)
}

// run starts one of our programs, and waits until it answers.
func (c *Cluster) run(t testing.TB, name string, environment []string, flags ...string) *Manager {
	t.Helper()
	binary := filepath.Join("..", "..", "bin", name)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("bin/%s is missing: run 'make build' (%v)", name, err)
	}
	address := freeport.ForTest(t)
	output := &bytes.Buffer{}
	command := exec.Command(binary, append([]string{"--metrics-bind-address", address}, flags...)...)
	command.Stdout, command.Stderr = output, output
	command.Env = append(os.Environ(), environment...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceValue(func() error {
		err := command.Process.Signal(os.Interrupt)
		if err = errors.Join(err, command.Wait()); err != nil {
			return fmt.Errorf("stopping the %s, %w", name, err)
		}
		return nil
	})
	manager := &Manager{command: command, metrics: "http://" + address + "/metrics", stop: stop}
	t.Cleanup(func() {
		if err := stop(); err != nil && !manager.killed {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the %s said:\n%s", name, output.Bytes()[max(0, output.Len()-4000):])
		}
	})
	poll.Eventually(t, "the "+name+" answers", func(ctx context.Context) error {
		_, err := manager.read(ctx)
		return err
	})
	return manager
}

// Metrics are samples of a process: name and labels as Prometheus writes them, and the value.
type Metrics map[string]float64

// Metrics reads the manager's metrics.
func (m *Manager) Metrics(t testing.TB) Metrics {
	t.Helper()
	metrics, err := m.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

func (m *Manager) read(ctx context.Context) (Metrics, error) { return ReadMetrics(ctx, m.metrics) }

// ReadMetrics reads the metrics of a process at their URL.
func ReadMetrics(ctx context.Context, url string) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics at %s, %w", url, err)
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	return ParseMetrics(response.Body)
}

// ParseMetrics reads metrics as Prometheus writes them.
func ParseMetrics(text io.Reader) (Metrics, error) {
	metrics, lines := Metrics{}, bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), " ")
		if end := strings.LastIndex(lines.Text(), "} "); end >= 0 {
			name, value, found = lines.Text()[:end+1], lines.Text()[end+2:], true
		}
		if number, err := strconv.ParseFloat(value, 64); found && err == nil {
			metrics[name] = number
		}
	}
	return metrics, lines.Err()
}

// Requests is the number of requests to the API server with one of the methods; of all methods if none is named.
func (m Metrics) Requests(methods ...string) float64 {
	return m.sum("rest_client_requests_total{", func(name string) bool {
		for _, method := range methods {
			if strings.Contains(name, `method="`+method+`"`) {
				return true
			}
		}
		return len(methods) == 0
	})
}

// HostsInError is the number of hosts in error, free and claimed. A host that matches several NodeTypes counts in each.
func (m Metrics) HostsInError() float64 {
	return m.sum("karpenter_metal3_hosts{", func(name string) bool {
		return strings.Contains(name, `state="error"`) || strings.Contains(name, `reason="Error"`)
	})
}

// Writes is the number of requests that write.
func (m Metrics) Writes() float64 { return m.Requests("POST", "PUT", "PATCH", "DELETE") }

// Conflicts is the number of writes that were refused because the object had changed meanwhile.
func (m Metrics) Conflicts() float64 {
	return m.sum("rest_client_requests_total{", func(name string) bool { return strings.Contains(name, `code="409"`) })
}

// Reconciles is the number of reconciles of a controller.
func (m Metrics) Reconciles(controller string) float64 {
	return m.sum("controller_runtime_reconcile_total{",
		func(name string) bool { return strings.Contains(name, `controller="`+controller+`"`) })
}

// Busy is the number of objects that are queued or being reconciled. Delayed requeues do not count.
func (m Metrics) Busy() float64 {
	all := func(string) bool { return true }
	return m.sum("workqueue_depth{", all) + m.sum("controller_runtime_active_workers{", all)
}

// HeapInUse is the memory in bytes that the process uses for objects, garbage included.
func (m Metrics) HeapInUse() float64 { return m["go_memstats_heap_inuse_bytes"] }

// Resident is the memory in bytes that the process has from the operating system.
func (m Metrics) Resident() float64 { return m["process_resident_memory_bytes"] }

// CPUSeconds is the CPU time of the process in seconds.
func (m Metrics) CPUSeconds() float64 { return m["process_cpu_seconds_total"] }

func (m Metrics) sum(prefix string, wanted func(name string) bool) (total float64) {
	for name, value := range m {
		if strings.HasPrefix(name, prefix) && wanted(name) {
			total += value
		}
	}
	return total
}

// Webhook is the webhook, running as a process, and configured in its API server.
type Webhook struct {
	*Manager
	// URL of the webhook, without a path.
	URL string
	// Client trusts the webhook's certificate, and keeps connections as the API server does.
	Client *http.Client
}

// StartWebhook starts bin/webhook, configures it in the API server, and waits until it is ready. It is stopped when the
// test ends.
func (c *Cluster) StartWebhook(t testing.TB) *Webhook {
	t.Helper()
	address, health := freeport.ForTest(t), freeport.ForTest(t)
	authority, err := pki.NewAuthority("webhook", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Serving("webhook", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	certificates := t.TempDir()
	if err := pair.WriteFiles(certificates, "tls"); err != nil {
		t.Fatal(err)
	}
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address, CABundle: authority.Certificate()})
	if err != nil {
		t.Fatal(err)
	}
	for _, configuration := range configurations {
		if err := c.Client.Create(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
	}
	process := c.start(t, "webhook", nil, "--webhook-bind-address", address, "--shutdown-delay=0",
		"--cert-rotation=false", "--cert-dir", certificates, "--health-probe-bind-address", health)
	poll.Eventually(t, "the webhook is ready", func(ctx context.Context) error {
		return cluster.CheckURL(ctx, http.DefaultClient, "http://"+health+"/readyz")
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &Webhook{Manager: process, URL: "https://" + address, Client: &http.Client{Transport: transport}}
}
