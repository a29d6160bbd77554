// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metal3v1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// realPrograms returns where `make tools` puts them, or skips the test.
func realPrograms(t *testing.T) cluster.Binaries {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	binaries := cluster.Binaries{dir, os.Getenv("KUBEBUILDER_ASSETS")}
	config := Config{Binaries: binaries, Without: []string{ManagerName, ProviderName, WebhookName}, Screen: true}
	if err := config.checkBinaries(); err != nil {
		t.Skip(err)
	}
	return binaries
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(content []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(content)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func clientOf(t *testing.T, kubeconfig string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: env.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUp(t *testing.T) {
	progress := &buffer{}
	config := Config{
		Dir: t.TempDir(), Binaries: realPrograms(t), Fleet: oneServer(), Progress: progress,
		Without: []string{ManagerName, ProviderName, WebhookName}, Screen: true,
	}
	s, err := Up(t.Context(), config)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}
	defer s.Close()

	t.Run("Screen", func(t *testing.T) {
		report, err := Status(config.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if report.Screen == "" || report.Screen != s.Screen() {
			t.Errorf("the address of the page is %q, and its status says %q", s.Screen(), report.Screen)
		}
		answer, err := http.Get(report.Screen)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		if err != nil || !bytes.Contains(page, []byte("gpu-01")) || bytes.Contains(page, []byte("may not list")) {
			t.Errorf("the page does not show the server (%v):\n%s", err, page)
		}
	})

	t.Run("ServersAreAvailable", func(t *testing.T) {
		var host metal3v1alpha1.BareMetalHost
		key := client.ObjectKey{Namespace: HostNamespace, Name: "gpu-01"}
		if err := clientOf(t, s.Kubeconfigs().Management).Get(t.Context(), key, &host); err != nil {
			t.Fatal(err)
		}
		if host.Status.Provisioning.State != metal3v1alpha1.StateAvailable {
			t.Errorf("state is %s", host.Status.Provisioning.State)
		}
		if host.Status.HardwareDetails == nil || host.Status.HardwareDetails.CPU.Count != 64 {
			t.Errorf("Metal3 does not know the server's hardware: %+v", host.Status.HardwareDetails)
		}
	})
	t.Run("Rights", func(t *testing.T) {
		kubeconfigs := s.Kubeconfigs()
		cases := map[string]struct {
			reason, kubeconfig, namespace string
			list                          client.ObjectList
			allowed                       bool
		}{
			"ManagerHosts": {reason: "The manager claims hosts.", kubeconfig: kubeconfigs.Manager, namespace: HostNamespace,
				list: &metal3v1alpha1.BareMetalHostList{}, allowed: true},
			"ProviderHosts": {reason: "No tenant sees hosts.", kubeconfig: kubeconfigs.ProviderManagement, namespace: HostNamespace,
				list: &metal3v1alpha1.BareMetalHostList{}},
			"ProviderCredentials": {reason: "No tenant sees BMC credentials.", kubeconfig: kubeconfigs.ProviderManagement, namespace: HostNamespace,
				list: &corev1.SecretList{}},
			"ProviderOwnSecrets": {reason: "The provider writes user data.", kubeconfig: kubeconfigs.ProviderManagement, namespace: DefaultTenant,
				list: &corev1.SecretList{}, allowed: true},
			"ProviderTenantNodes": {reason: "Karpenter looks after nodes.", kubeconfig: kubeconfigs.ProviderTenant, list: &corev1.NodeList{},
				allowed: true},
			"ViewerSecrets": {reason: "Who looks at the page sees no secret.", kubeconfig: kubeconfigs.ViewerManagement,
				namespace: HostNamespace, list: &corev1.SecretList{}},
			"ViewerPods": {reason: "The page explains pods.", kubeconfig: kubeconfigs.ViewerTenant, list: &corev1.PodList{}, allowed: true},
			"ProviderAllSecrets": {reason: "The tenant's own secrets are none of the provider's business.", kubeconfig: kubeconfigs.ProviderTenant,
				namespace: "default", list: &corev1.SecretList{}},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				err := clientOf(t, tc.kubeconfig).List(t.Context(), tc.list, client.InNamespace(tc.namespace))
				if tc.allowed && err != nil || !tc.allowed && !apierrors.IsForbidden(err) {
					t.Errorf("%s\nallowed should be %t, got %v", tc.reason, tc.allowed, err)
				}
			})
		}
	})
	t.Run("SecondUpIsRefused", func(t *testing.T) {
		_, err := Up(t.Context(), config)
		var running *RunningError
		if !errors.As(err, &running) || running.PID != os.Getpid() {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("Status", func(t *testing.T) {
		report, err := Status(config.Dir)
		if err != nil {
			t.Fatal(err)
		}
		running := map[string]bool{}
		for _, process := range report.Processes {
			running[process.Name] = true
		}
		for _, want := range []string{"sandbox", "etcd", "management-kube-apiserver", "tenant-kube-apiserver", "tenant-kube-scheduler",
			"baremetal-operator", "kwok"} {
			if !running[want] {
				t.Errorf("%s is not among the running %v", want, running)
			}
		}
	})
	t.Run("CrashIsMended", func(t *testing.T) {
		if err := s.Processes().Kill("baremetal-operator"); err != nil {
			t.Fatal(err)
		}
		err := cluster.Await(t.Context(), "the restart", func(context.Context) error {
			for _, info := range s.Processes().List() {
				if info.Name == "baremetal-operator" && info.Restarts == 1 {
					return nil
				}
			}
			return errors.New("not restarted yet")
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(progress.String(), "baremetal-operator died (signal: killed), it is started again") {
			t.Errorf("no progress was printed:\n%s", progress)
		}
	})
	t.Run("CloseLeavesNothing", func(t *testing.T) {
		processes := s.Processes().List()
		s.Close()
		for _, process := range processes {
			if _, ok := inspect(process.Name, process.PID); ok {
				t.Errorf("%s (pid %d) is left running", process.Name, process.PID)
			}
		}
		if err := s.Wait(t.Context()); err == nil {
			t.Error("a closed sandbox can be waited for")
		}
		l, err := acquire(config.Dir)
		if err != nil {
			t.Fatalf("the directory is not free: %v", err)
		}
		l.release()
	})
}

// A program that exits at once must end the start of the sandbox, with its output.
func TestUpShowsLastLogLines(t *testing.T) {
	binaries := realPrograms(t)
	broken := t.TempDir()
	script := "#!/bin/sh\necho the moon is in the wrong phase\nexit 7\n"
	if err := os.WriteFile(filepath.Join(broken, "kube-scheduler"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := Up(t.Context(), Config{
		Dir: dir, Binaries: append(cluster.Binaries{broken}, binaries...), Fleet: oneServer(),
		Without: []string{ManagerName, ProviderName, WebhookName},
	})
	if err == nil {
		s.Close()
		t.Fatal("a sandbox without a scheduler came up")
	}
	for _, want := range []string{
		"tenant-kube-scheduler failed (exit status 7)", "the moon is in the wrong phase", filepath.Join(dir, "log", "tenant-kube-scheduler.log"),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	if err != nil || len(left) > 0 {
		t.Errorf("left running: %v, %v", left, err)
	}
}

func TestUpInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	interrupt := &onWrite{do: cancel}
	s, err := Up(ctx, Config{
		Dir: t.TempDir(), Binaries: realPrograms(t), Fleet: oneServer(), Progress: interrupt,
		Without: []string{ManagerName, ProviderName, WebhookName},
	})
	if err == nil {
		s.Close()
		t.Fatal("an interrupted start came to an end")
	}
	if !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error is %v", err)
	}
}

// onWrite does something at the first write.
type onWrite struct {
	once sync.Once
	do   func()
}

func (w *onWrite) Write(content []byte) (int, error) {
	w.once.Do(w.do)
	return len(content), nil
}
