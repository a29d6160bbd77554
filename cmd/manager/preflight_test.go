// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const hostsNamespace = "metal3-system"

// runPreflight runs "manager preflight", and returns its table.
func runPreflight(t *testing.T, args ...string) (string, error) {
	t.Helper()
	// A process applies the flags of logging once. What flushes the log reads them.
	klog.StopFlushDaemon()
	if err := logsapi.ResetForTest(nil); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	command := newCommand(&out)
	command.SetArgs(append([]string{"preflight"}, args...))
	command.SetOut(&out)
	command.SetErr(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPreflightInput: wrong input is one sentence, which names what to change.
func TestPreflightInput(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	nowhere := write("nowhere", `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "c", "user": {"token": "secret"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`)
	for name, tc := range map[string]struct {
		reason string
		args   []string
		says   []string
	}{
		"NoKubeconfig": {"there is no default", nil, []string{"no kubeconfig for the management cluster", "--kubeconfig"}},
		"NoFile":       {"a typo", []string{"--kubeconfig=" + dir + "/none"}, []string{"does not exist"}},
		"NoCluster": {"nothing answers", []string{"--kubeconfig=" + nowhere, "--timeout=1s"}, []string{"did not answer within 1s",
			"127.0.0.1:1"}},
		"NoTimeout":      {"it would never end", []string{"--kubeconfig=" + nowhere, "--timeout=0s"}, []string{"--timeout is 0s"}},
		"NoAuthorities":  {"a typo", []string{"--ironic-ca-file=" + dir + "/none"}, []string{"--ironic-ca-file cannot be read"}},
		"BadAuthorities": {"no certificate", []string{"--ironic-ca-file=" + write("text", "x")}, []string{"no certificate in PEM"}},
		"UnknownFlag":    {"a typo", []string{"--ironic"}, []string{"unknown flag: --ironic"}},
		"Argument":       {"there are none", []string{"now"}, []string{`unknown command "now"`}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPreflight(t, tc.args...)
			if err == nil || out != "" {
				t.Fatalf("%s: it ends with %v, and prints %q", tc.reason, err, out)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", tc.reason, err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %q is not one line, or has a credential", tc.reason, err)
			}
		})
	}
	out, err := runPreflight(t, "--help")
	for _, part := range []string{"exit code 1", "--ironic-url", "--images", "/manager preflight", "KARPENTER_METAL3_"} {
		if err != nil || !strings.Contains(out, part) {
			t.Errorf("--help (%v) does not say %q:\n%s", err, part, out)
		}
	}
}

// TestPreflight goes from an empty cluster to one with everything, and takes away from it.
func TestPreflight(t *testing.T) {
	environment := env.NewEnvironment(t)
	ctx, c := t.Context(), environment.Client
	create := func(objects ...client.Object) {
		t.Helper()
		for _, object := range objects {
			if err := c.Create(ctx, object); err != nil {
				t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
			}
		}
	}
	admin := "--kubeconfig=" + environment.Kubeconfig(t, "")
	has := func(when, flag string, failed bool, lines ...string) {
		t.Helper()
		var last string
		poll.Eventually(t, when, func(context.Context) error { // what the API server publishes follows its definitions
			out, err := runPreflight(t, flag)
			last = out
			if (err != nil) != failed || failed && !strings.Contains(err.Error(), "checks failed") {
				return fmt.Errorf("it ends with %w:\n%s", errors.Join(err, errors.New("which is not expected")), out)
			}
			fields := strings.Join(strings.Fields(out), " ")
			for _, line := range lines {
				if !strings.Contains(fields, line) {
					return fmt.Errorf("it does not say %q:\n%s", line, out)
				}
			}
			return nil
		})
		t.Logf("%s:\n%s", when, last)
	}

	names, err := policy.Names()
	if err != nil {
		t.Fatal(err)
	}
	has("an empty cluster", admin, false,
		"CHECK RESULT FOUND Kubernetes OK v1.36.", "CRD BareMetalHost (metal3.io/v1alpha1) OK has the fields that are needed",
		"CRDs of karpenter.metal3.io OK", "NodeProviders WARN", "webhook WARN there is no ValidatingWebhookConfiguration karpenter-metal3",
		fmt.Sprintf("admission policies WARN %d are missing: ValidatingAdmissionPolicy karpenter-metal3-hosts, ", 2*len(names)),
		"Ironic objects SKIP ironic-standalone-operator is not installed")

	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}
	provider.Spec.Metal3.ClusterRef.Namespace = hostsNamespace
	create(provider)
	has("a namespace that does not exist", admin, true, "hosts in metal3-system FAIL the namespace does not exist",
		"-> kubectl create namespace metal3-system")

	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostsNamespace}})
	environment.Grant(t, environment.Namespace(t), "manager.yaml")
	environment.CreateHost(t, env.AvailableHost(hostsNamespace, "server-01", map[string]string{"type": "cpu"}))
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}
	nodeType.Spec.ProviderRef.Name = provider.Name
	nodeType.Spec.HardwareProfile = v1alpha1.HardwareProfile{Resources: env.Resources("cpu", "1", "memory", "1Gi"),
		BareMetalHosts: env.HostsWith(map[string]string{"type": "cpu"})}
	create(nodeType)
	policies, err := policy.Management(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create(policies...)
	configurations, err := webhook.Both(webhook.Options{URL: "https://127.0.0.1:1", CABundle: environment.Config.CAData})
	if err != nil {
		t.Fatal(err)
	}
	create(configurations...)
	has("a cluster that has everything", admin, false, "hosts in metal3-system OK 1, of which 1 can be claimed",
		fmt.Sprintf("admission policies OK %d, each with its binding", len(names)), "webhook OK")

	const user = "karpenter-metal3-manager"
	has("the rights of the manager", "--kubeconfig="+environment.Kubeconfig(t, user), false, "hosts in metal3-system OK",
		"admission policies OK", `webhook SKIP cannot check, a right is missing: User "`+user+
			`" cannot get resource "validatingwebhookconfigurations"`)
	atStart(t, environment, user)

	definition := ironicDefinition()
	create(definition)
	ironic := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ironic.metal3.io/v1alpha1", "kind": "Ironic"}}
	ironic.SetNamespace(hostsNamespace)
	ironic.SetName("ironic")
	poll.Eventually(t, "the kind of ironic-standalone-operator is served", func(ctx context.Context) error { return c.Create(ctx, ironic) })
	has("an Ironic that its operator has not seen", admin, true,
		"Ironic metal3-system/ironic FAIL ironic-standalone-operator has not looked at it")

	nodeTypes := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: "nodetypes.karpenter.metal3.io"}, nodeTypes); err != nil {
		t.Fatal(err)
	}
	properties := nodeTypes.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	properties["later"] = properties["zone"]
	delete(properties, "zone")
	if err := c.Update(ctx, nodeTypes); err != nil {
		t.Fatal(err)
	}
	has("an older definition", admin, true, "CRD NodeType (karpenter.metal3.io/v1alpha1) FAIL is older than this program: it lacks spec.zone")

	if err := c.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "baremetalhosts." + bmov1alpha1.GroupVersion.Group}}); err != nil {
		t.Fatal(err)
	}
	has("no Metal3", admin, true, "CRD BareMetalHost (metal3.io/v1alpha1) FAIL is not installed",
		"BareMetalHosts SKIP cannot check: the cluster does not have the kind")
}

// atStart has a manager with the rights of a user log the checks: it has the rights to all of them.
func atStart(t *testing.T, environment *env.Environment, user string) {
	t.Helper()
	config := rest.CopyConfig(environment.Config)
	config.Impersonate.UserName = user
	var mu sync.Mutex
	var lines []string
	logger := funcr.NewJSON(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	ctx, stop := context.WithCancel(log.IntoContext(t.Context(), logger))
	mgr, err := manager.New(config, manager.Options{Scheme: operator.ManagementScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Logger: logr.Discard(), BaseContext: func() context.Context { return ctx }})
	if err != nil {
		t.Fatal(err)
	}
	if err := logPreflight(mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	poll.Eventually(t, "the manager logs the checks", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(lines) == 0 {
			return errors.New("it has logged nothing")
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"failed":0`) || !strings.Contains(lines[0], "1 can be claimed") {
		t.Errorf("at its start the manager logs:\n%s\nwant one line, with all that is in order", strings.Join(lines, "\n"))
	}
}

// ironicDefinition is a definition of the kind of ironic-standalone-operator.
func ironicDefinition() *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "ironics.ironic.metal3.io"}}
	definition.Spec.Group, definition.Spec.Scope = "ironic.metal3.io", apiextensionsv1.NamespaceScoped
	definition.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "ironics", Singular: "ironic", Kind: "Ironic",
		ListKind: "IronicList"}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
			XPreserveUnknownFields: ptr.To(true)}}}}
	return definition
}
