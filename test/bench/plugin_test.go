// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

// BenchmarkPlugin has people look at 10,000 inspected servers: once, by kubectl metal3 fleet, and all the time, by kubectl metal3 ui, while
// the status of each server is written once. The two programs talk to the API server through a proxy that counts. It reports:
//
//	fleet-s         what the command takes
//	fleet-requests  to the API server
//	fleet-MiB       of resident memory, at the most
//	page-s          from the start of the program until the first page is there
//	page-requests   to the API server until then, watches included
//	page-KiB        the first page
//	more-requests   to the API server while the statuses are written
//	ui-MiB          of resident memory, at the most
func BenchmarkPlugin(b *testing.B) {
	for b.Loop() {
		cluster := management.New(b, nil)
		cluster.CreateInspectedHosts(b, fleetSize)
		cluster.StartManager(b)
		awaitTypes(b, cluster, fleetSize)
		requests, kubeconfig := countedProxy(b, cluster.Config)

		begin := time.Now()
		fleet := plugin(b.Context(), kubeconfig, "fleet", "--output=json")
		if output, err := fleet.Output(); err != nil {
			b.Fatalf("%v: %s", err, output)
		}
		b.ReportMetric(time.Since(begin).Seconds(), "fleet-s")
		reportAtMost(b, float64(requests.Load()), "fleet-requests", 10, "the kinds of the group, and one list of each kind that it shows")
		b.ReportMetric(mostMemory(fleet), "fleet-MiB")

		requests.Store(0)
		begin = time.Now()
		screen := plugin(b.Context(), kubeconfig, "ui")
		page := open(b, screen)
		b.ReportMetric(time.Since(begin).Seconds(), "page-s")
		// The checks behind the issues read beside the page: they are before it on a slow machine.
		reportAtMost(b, float64(requests.Load()), "page-requests", 11, "the same, each as a watch, and four that the checks read")
		b.ReportMetric(float64(page)/(1<<10), "page-KiB")
		requests.Store(0)
		writeStatuses(b, cluster)
		b.ReportMetric(float64(requests.Load()), "more-requests")
		if err := screen.Process.Signal(syscall.SIGTERM); err != nil {
			b.Fatal(err)
		}
		if err := screen.Wait(); err != nil {
			b.Errorf("kubectl metal3 ui, %v", err)
		}
		b.ReportMetric(mostMemory(screen), "ui-MiB")
	}
}

// plugin is a command of kubectl metal3.
func plugin(ctx context.Context, kubeconfig string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join("..", "..", "bin", "kubectl-metal3"), append(arguments, "--kubeconfig="+kubeconfig)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// mostMemory is what a process that has ended had at the most, in MiB.
func mostMemory(ended *exec.Cmd) float64 {
	return float64(ended.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / (1 << 10)
}

// countedProxy counts requests to an API server. A kubeconfig file has its address.
func countedProxy(b *testing.B, config *rest.Config) (requests *atomic.Int64, kubeconfig string) {
	b.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		b.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	if proxy.Transport, err = rest.TransportFor(config); err != nil {
		b.Fatal(err)
	}
	proxy.FlushInterval = -1 // watches
	requests = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		requests.Add(1)
		proxy.ServeHTTP(w, request)
	}))
	b.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	kubeconfig = filepath.Join(b.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"counted": {Server: server.URL}}, CurrentContext: "counted",
		Contexts: map[string]*api.Context{"counted": {Cluster: "counted"}},
	}, kubeconfig); err != nil {
		b.Fatal(err)
	}
	return requests, kubeconfig
}

// open starts the page, reads it once, and returns how many bytes it has.
func open(b *testing.B, screen *exec.Cmd) int64 {
	b.Helper()
	screen.Stderr = os.Stderr
	output, err := screen.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := screen.Start(); err != nil {
		b.Fatal(err)
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.Get(strings.TrimSpace(address))
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	size, err := io.Copy(io.Discard, response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("%s, %v", response.Status, err)
	}
	return size
}

// writeStatuses writes the status of each host once.
func writeStatuses(b *testing.B, cluster *management.Cluster) {
	b.Helper()
	hosts := cluster.Hosts(b)
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(workers)
	for n := range hosts {
		group.Go(func() error { return cluster.Touch(ctx, &hosts[n], n) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}
