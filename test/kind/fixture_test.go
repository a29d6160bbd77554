// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplane "github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	// enabled is the environment variable that the tests run with. The kubeconfigs alone do not enable them: these tests delete
	// what users of test/e2e keep.
	enabled = "E2E_KIND"
	// releaseNamespace is that of the chart in the management cluster, and of the tenant's in the tenant's cluster.
	releaseNamespace = "karpenter-metal3"
	// tenantNamespace is the tenant's in the management cluster.
	tenantNamespace = "tenant-a"
)

// fixture is the environment that kind-env has made.
type fixture struct {
	t                                      *testing.T
	started                                time.Time
	managementKubeconfig, tenantKubeconfig string
	managementREST, tenantREST             *rest.Config
	management, tenant                     client.Client
	// page runs the commands of docs/install.md, with another name for the tenant, and upgradePage those of docs/upgrade.md.
	page, upgradePage *page.Page
	// fleet is the folder with the manifests of the servers.
	fleet, podImage string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skip("it uninstalls the charts from the kind clusters of an environment: run `make e2e-kind`, which needs Docker")
	}
	w := &fixture{t: t, started: time.Now()}
	for variable, value := range map[string]*string{
		"E2E_MANAGEMENT_KUBECONFIG": &w.managementKubeconfig, "E2E_TENANT_KUBECONFIG": &w.tenantKubeconfig, "E2E_FLEET": &w.fleet,
		"E2E_POD_IMAGE": &w.podImage,
	} {
		if *value = os.Getenv(variable); *value == "" {
			t.Fatalf("%s is not set: run `make e2e-kind`, which sets it", variable)
		}
	}
	w.managementREST, w.management = connect(t, w.managementKubeconfig)
	var tenant client.WithWatch
	w.tenantREST, tenant = connect(t, w.tenantKubeconfig)
	w.tenant = controlplane.RecreatingEvicted(tenant)
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	pages := page.Config{
		File: filepath.Join(repository, "docs", "install.md"), Dir: filepath.Join(t.TempDir(), "page"), Bin: filepath.Join(repository, "bin"),
		Kubeconfig: w.managementKubeconfig,
		Links:      map[string]string{"charts": filepath.Join(repository, "charts"), tenantNamespace + "-admin.kubeconfig": w.tenantKubeconfig},
		// The page waits for the Deployments after each installation. Installing with --wait must work too.
		Names: []string{"acme", tenantNamespace, "helm install", "helm install --wait --timeout=3m"},
	}
	if w.page, err = page.Open(pages); err != nil {
		t.Fatal(err)
	}
	pages.File = filepath.Join(repository, "docs", "upgrade.md")
	if w.upgradePage, err = page.Open(pages); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			w.diagnose()
		}
	})
	return w
}

func connect(t *testing.T, kubeconfig string) (*rest.Config, client.WithWatch) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return config, c
}

// logf logs with the time since the test began.
func (w *fixture) logf(format string, args ...any) {
	// The time of a line is more useful here than its place in the code.
	_, _ = fmt.Fprintf(w.t.Output(), "%6.1fs  %s\n", time.Since(w.started).Seconds(), fmt.Sprintf(format, args...)) // to the test's log
}

// until waits until the check returns no error, and fails the test with the last error.
func (w *fixture) until(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, done := poll.WithPatience(t.Context())
	defer done()
	if err := controlplane.Await(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// follow runs the commands of a section of a page, which must have this number of blocks.
func (w *fixture) follow(t *testing.T, p *page.Page, section string, blocks int, replacements ...string) {
	t.Helper()
	if _, err := p.Follow(t.Context(), section, blocks, replacements...); err != nil {
		t.Fatal(err)
	}
}

// run runs commands that are not on the page.
func (w *fixture) run(t *testing.T, commands string) {
	t.Helper()
	if _, err := w.page.Run(t.Context(), commands); err != nil {
		t.Fatal(err)
	}
}

// diagnose prints the state of the charts' pods, and the end of their logs.
func (w *fixture) diagnose() {
	// The test's own context is over by now.
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	for _, command := range []string{
		"kubectl get nodes,pods,services,endpointslices -A -o wide", "kubectl get events -A",
		"kubectl get machines.karpenter.metal3.io,nodetypes,baremetalhosts -A -o wide",
		"kubectl --kubeconfig " + w.tenantKubeconfig + " get nodes,nodepools,nodeclaims,pods -A -o wide",
		"for pod in $(kubectl get pods -A -l app.kubernetes.io/component -o " +
			"'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}'); do " +
			`echo "== $pod"; kubectl -n ${pod%/*} logs --tail=30 ${pod#*/}; done`,
	} {
		output, err := w.page.Run(ctx, command)
		if err == nil {
			w.t.Logf("%s:\n%s", command, output)
		} else {
			w.t.Log(err)
		}
	}
}
