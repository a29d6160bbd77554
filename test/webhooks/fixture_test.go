// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

var (
	environment env.Environment
	// binary is the webhook.
	binary string
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "webhook-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: making a directory for the webhook,", err)
		os.Exit(1)
	}
	binary = filepath.Join(dir, "webhook")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/webhook")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "error: building the webhook,", err)
		os.Exit(1)
	}
	flag, err := showCertificate(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: making a client certificate,", err)
		os.Exit(1)
	}
	environment.Flags = []string{flag}
	env.Main(m, &environment)
}

// process is a running webhook.
type process struct {
	command *exec.Cmd
	// address of the webhook, and URLs of its probes and metrics.
	address, health, metrics string
	// output is the file with its log.
	output string
	ended  chan struct{}
}

// log returns its log.
func (p *process) log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// start starts a webhook at an address, or at a free one if that is empty. It is stopped when the test ends, and its
// last words are shown if the test has failed.
func start(t testing.TB, address string, flags ...string) *process {
	t.Helper()
	if address == "" {
		address = freeport.ForTest(t)
	}
	health, metrics := freeport.ForTest(t), freeport.ForTest(t)
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	environment.Grant(t, "default", "webhook.yaml")
	command := exec.Command(binary,
		append([]string{"--kubeconfig", environment.Kubeconfig(t, "karpenter-metal3-webhook"), "--webhook-bind-address", address,
			"--health-probe-bind-address", health, "--metrics-bind-address", metrics, "--metrics-secure=false"}, flags...)...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = command.Start()
	if err = errors.Join(err, output.Close()); err != nil {
		t.Fatal(err)
	}
	p := &process{command: command, address: address, health: "http://" + health, metrics: "http://" + metrics, output: output.Name(),
		ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = command.Wait() // it is killed in the end
	}()
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			text := p.log(t)
			t.Logf("the webhook at %s said:\n%s", address, text[max(0, len(text)-4000):])
		}
	})
	return p
}

// kill ends the process, as a crash would.
func (p *process) kill(t testing.TB) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("killing the webhook, %v", err)
	}
	<-p.ended
}

// await waits until the webhook says that it is ready.
func (p *process) await(t testing.TB) *process {
	t.Helper()
	poll.Eventually(t, "the webhook is ready", func(ctx context.Context) error {
		_, err := get(ctx, p.health+"/readyz")
		return err
	})
	return p
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // it was read to the end, or there is an error already
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}

// settings of certificates that none of the tests outlives.
var settings = func() certs.Settings {
	settings := certs.DefaultSettings()
	settings.Names = []string{"127.0.0.1"}
	return settings
}()

// rotate makes the certificates of a webhook, which has a namespace, until the test ends or stop is called. That is the part of the manager
// that is about the webhook, with the manager's rights. A whole manager would work on the objects of the tests.
func rotate(t testing.TB, namespace string, settings certs.Settings) (stop func()) {
	t.Helper()
	environment.Grant(t, namespace, "manager-webhook.yaml")
	secret := types.NamespacedName{Namespace: namespace, Name: certs.SecretName}
	config := rest.CopyConfig(environment.Config)
	config.Impersonate.UserName = "karpenter-metal3-manager"
	mgr, err := manager.New(config, manager.Options{Scheme: environment.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{ByObject: certs.Cached(secret, webhook.ConfigurationName)},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}})
	if err != nil {
		t.Fatal(err)
	}
	rotator := certs.NewRotator(mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{}, secret, webhook.ConfigurationName, settings)
	if err := rotator.Register(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("making certificates, %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// configure tells the API server to ask the webhook at an address, and no longer when the test ends.
func configure(t testing.TB, address string) {
	t.Helper()
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address})
	if err != nil {
		t.Fatal(err)
	}
	create(t, configurations...)
	t.Cleanup(func() {
		for _, configuration := range configurations {
			if err := environment.Client.Delete(context.Background(), configuration); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
}

// asked makes the fleet, and a webhook that the API server asks until the test ends.
func asked(t testing.TB) *process {
	t.Helper()
	fleet(t)
	webhook := start(t, "")
	configure(t, webhook.address)
	rotate(t, "default", settings)
	webhook.await(t)
	awaitAsked(t)
	return webhook
}

// awaitAsked waits until the API server asks the webhook: a Machine and a pod that only the webhook has something against
// are refused.
func awaitAsked(t testing.TB) {
	t.Helper()
	wrong := parse[v1alpha1.Machine](t, "{metadata: {namespace: team-b, name: wrong}, spec: {nodeTypeRef: {name: h100}, labels: {'a b': c}}}")
	poll.Eventually(t, "the API server asks the webhook", func(ctx context.Context) error {
		err := environment.Client.Create(ctx, wrong.DeepCopy(), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("it answers %v", err)
		}
		err = environment.Client.Create(ctx, hostPod(t, "inference", "asked", "gpu"), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("it answers %v to a pod", err)
		}
		return nil
	})
}

// hostPod is the copy that vCluster makes on the host of the pod default/NAME of a tenant, with claims and templates
// ("template:NAME").
func hostPod(t testing.TB, tenant, name string, claims ...string) *corev1.Pod {
	t.Helper()
	onHost, err := names.HostName(name, "default", tenant)
	if err != nil {
		t.Fatal(err)
	}
	origin := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}}
	key := client.ObjectKey{Namespace: tenant, Name: onHost}
	metadata := names.HostMetadata(origin, names.PodKind, key, tenant, names.Metadata{})
	pod := parse[corev1.Pod](t, "{spec: {containers: [{name: a, image: a}]}}")
	pod.Namespace, pod.Name, pod.Labels, pod.Annotations = key.Namespace, key.Name, metadata.Labels, metadata.Annotations
	for i, claim := range claims {
		reference := corev1.PodResourceClaim{Name: fmt.Sprint("claim-", i)}
		if template, is := strings.CutPrefix(claim, "template:"); is {
			reference.ResourceClaimTemplateName = &template
		} else {
			reference.ResourceClaimName = &claim
		}
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, reference)
		pod.Spec.Containers[0].Resources.Claims = append(pod.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: reference.Name})
	}
	return pod
}

func create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
		}
	}
}
