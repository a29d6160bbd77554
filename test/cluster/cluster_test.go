// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	bootstraptokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// programs returns where `make tools` puts the control plane, or skips the test.
func programs(t *testing.T) Binaries {
	t.Helper()
	binaries := Binaries{filepath.Join("..", "..", "bin"), os.Getenv("KUBEBUILDER_ASSETS")}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm"} {
		if _, err := binaries.Find(name); err != nil {
			t.Skip(err)
		}
	}
	return binaries
}

func TestTwoClusters(t *testing.T) {
	binaries := programs(t)
	ctx, cancel := poll.WithPatience(t.Context())
	defer cancel()
	dir := t.TempDir()
	processes := process.ForTest(t, dir)
	etcd, err := StartEtcd(ctx, EtcdOptions{Dir: dir, Binaries: binaries, Processes: processes})
	if err != nil {
		t.Fatal(err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	var management, tenant *Cluster
	start := func(cluster **Cluster, options Options) {
		options.Dir, options.Binaries, options.Processes, options.Etcd = dir, binaries, processes, etcd
		group.Go(func() (err error) {
			*cluster, err = Start(groupCtx, options)
			return err
		})
	}
	start(&management, Options{Name: "management", Controllers: true})
	start(&tenant, Options{Name: "tenant", Nodes: true, Prepare: PrepareTenant})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	t.Run("EachHasItsOwnObjects", func(t *testing.T) {
		_, err := clientset(t, tenant.Kubeconfig).CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = clientset(t, management.Kubeconfig).CoreV1().ConfigMaps("default").Get(ctx, "mine", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("the management cluster sees an object of the tenant: %v", err)
		}
	})
	t.Run("EachHasItsOwnUsers", func(t *testing.T) {
		// The tenant's administrator, with the tenant's certificate, at the management cluster's API server.
		config, err := clientcmd.BuildConfigFromFlags("", tenant.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.Host, config.CAData = management.Server, management.CertificateAuthority()
		intruder, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := intruder.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("the management cluster admits the tenant's administrator: %v", err)
		}
	})
	t.Run("UsersHaveOnlyTheirRights", func(t *testing.T) {
		path := filepath.Join(dir, "user.kubeconfig")
		if err := tenant.WriteKubeconfig(path, "user"); err != nil {
			t.Fatal(err)
		}
		_, err := clientset(t, path).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("a user without any role lists secrets: %v", err)
		}
	})
	t.Run("UsersHaveGrantedRights", func(t *testing.T) {
		path := filepath.Join(dir, "provider.kubeconfig")
		if err := tenant.Grant(ctx, ProviderUser+"-a", "a", path, ProviderTenantRights...); err != nil {
			t.Fatal(err)
		}
		if _, err := clientset(t, path).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("the provider has the rights in config/rbac: %v", err)
		}
	})
	t.Run("NodesCanJoin", func(t *testing.T) {
		admin := clientset(t, tenant.Kubeconfig)
		info, err := admin.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstraptokenapi.ConfigMapClusterInfo, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if kubeconfig := info.Data[bootstraptokenapi.KubeConfigKey]; !strings.Contains(kubeconfig, tenant.Server) {
			t.Errorf("cluster-info does not name %s:\n%s", tenant.Server, kubeconfig)
		}
		for _, name := range []string{"kubeadm-config", "kubelet-config"} {
			if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		}
		secrets, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets.Items {
			if secret.Type == bootstraptokenapi.SecretTypeBootstrapToken {
				t.Errorf("bootstrap token %s is left behind", secret.Name)
			}
		}
	})
}

func clientset(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	made, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, "both"): 0o755, filepath.Join(second, "both"): 0o755,
		filepath.Join(first, "data"): 0o644, filepath.Join(second, "data"): 0o755,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason, program, want string
	}{
		"FirstWins":     {reason: "Directories are searched in order.", program: "both", want: filepath.Join(first, "both")},
		"NotExecutable": {reason: "A file that cannot be run is not the program.", program: "data", want: filepath.Join(second, "data")},
		"Missing":       {reason: "The error names the way out.", program: "none", want: "make tools"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Binaries{first, second}.Find(tc.program)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestKubernetes(t *testing.T) {
	// builds makes a directory with a control plane that says that it is of that version.
	builds := func(dir, version string, without ...string) string {
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm"} {
			if slices.Contains(without, name) {
				continue
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho Kubernetes "+version+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	empty, bin := t.TempDir(), builds(t.TempDir(), "v1.36.3")
	partly, wrong := builds(t.TempDir(), "v1.36.3"), builds(t.TempDir(), "v1.36.3")
	built := builds(filepath.Join(bin, "versions", "1.37"), "v1.37.2")
	builds(filepath.Join(partly, "versions", "1.37"), "v1.37.2", "kube-scheduler")
	builds(filepath.Join(wrong, "versions", "1.37"), "v1.35.8")
	for name, tc := range map[string]struct {
		reason   string
		binaries Binaries
		minor    string
		want     Binaries
		fails    string
	}{
		"Built":       {"it is searched before the other", Binaries{bin}, "1.37", Binaries{built, bin}, ""},
		"Second":      {"any directory may have it", Binaries{empty, bin}, "1.37", Binaries{built, empty, bin}, ""},
		"Default":     {"it needs no directory of its own", Binaries{bin}, "1.36", Binaries{bin, bin}, ""},
		"NotBuilt":    {"the error says how to build it", Binaries{bin}, "1.34", nil, "make versions-tools VERSIONS=1.34"},
		"PartlyBuilt": {"another version must not stand in", Binaries{partly}, "1.37", nil, "kube-scheduler is missing"},
		"Wrong": {"the test would say that it ran on 1.37", Binaries{wrong}, "1.37", nil,
			`is of Kubernetes 1.35, and "1.37" was asked for`},
		"Nothing":  {"nothing was built", Binaries{empty}, "1.37", nil, "kube-apiserver is missing"},
		"NotMinor": {"a path is no version", Binaries{bin}, "..", nil, `".." was asked for`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.binaries.Kubernetes(t.Context(), tc.minor)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\ngot %v, want %v", tc.reason, got, tc.want)
			}
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s\nerror is %v, want one with %q", tc.reason, err, tc.fails)
			}
		})
	}
}

func TestAwaitTimeoutMessage(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err := Await(ctx, "the moon", func(context.Context) error {
		if calls++; calls == 2 {
			cancel(errors.New("it is day"))
		}
		return errors.New("not up")
	})
	if err == nil {
		t.Fatal("waited for something that never came, and was content")
	}
	for _, want := range []string{"the moon", "it is day", "not up"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
