// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package env has a real API server for the tests of other packages, with the CRDs of a management cluster and of a
// tenant cluster.
package env

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	karpenterapis "sigs.k8s.io/karpenter/pkg/apis"
	_ "sigs.k8s.io/karpenter/pkg/apis/v1" // adds its kinds to client-go's scheme
	_ "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const (
	// assetsVariable names the directory of etcd, kube-apiserver and kubectl.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// lagVariable is how late caches may be: a duration such as 300ms. A test that fails with it depends on how fast the machine is.
	lagVariable = "TEST_WATCH_LAG"
)

// Environment is an API server with the definitions of the management cluster (ours and Metal3's) and of a tenant
// (Karpenter's and MetalNodeClass).
type Environment struct {
	// Config reaches the API server as its administrator, without client-side rate limits.
	Config *rest.Config
	// Client reads from the API server itself, never from a cache.
	Client client.WithWatch
	// Scheme has every kind that this project uses.
	Scheme *runtime.Scheme
	// Flags are more flags for the API server: --name=value.
	Flags []string

	envtest *envtest.Environment
}

// Main is the body of a package's TestMain: it starts one environment for all tests of the package, runs them, stops
// the environment and exits. Starting takes seconds, so tests share it and use their own namespaces and names.
func Main(m *testing.M, environment *Environment) {
	os.Exit(run(m, environment))
}

func run(m *testing.M, environment *Environment) (code int) {
	if err := environment.start(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	defer func() {
		if err := environment.envtest.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "error: stopping the API server,", err)
			code = 1
		}
	}()
	return m.Run()
}

// NewEnvironment starts an environment for one test alone and stops it when the test ends. Use it for tests that
// stop or break the API server, or need Flags of their own; others share the one of Main.
func NewEnvironment(t testing.TB, flags ...string) *Environment {
	t.Helper()
	environment := &Environment{Flags: flags}
	if err := environment.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.envtest.Stop(); err != nil {
			t.Errorf("stopping the API server, %v", err)
		}
	})
	return environment
}

// EtcdURL is where etcd answers, without TLS.
func (e *Environment) EtcdURL() string { return e.envtest.ControlPlane.Etcd.URL.String() }

// Scheme returns a scheme with every kind that this project uses.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	// Karpenter adds its kinds to client-go's global scheme when it is imported, and offers no function to add them to
	// another.
	for _, karpenter := range []schema.GroupVersion{
		{Group: karpenterapis.Group, Version: "v1"},
		{Group: karpenterapis.Group, Version: "v1alpha1"},
	} {
		for kind := range clientgoscheme.Scheme.KnownTypes(karpenter) {
			object, err := clientgoscheme.Scheme.New(karpenter.WithKind(kind))
			utilruntime.Must(err)
			scheme.AddKnownTypeWithName(karpenter.WithKind(kind), object)
		}
		metav1.AddToGroupVersion(scheme, karpenter)
	}
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))
	return scheme
}

// setLogger sets controller-runtime's logger once: two environments may be started at the same time. Without a logger
// controller-runtime prints a warning; with this one, only failed tests print their logs.
var setLogger = sync.OnceFunc(func() { log.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(errorLevel))) })

func (e *Environment) start() error {
	setLogger()
	root, err := RepositoryRoot()
	if err != nil {
		return err
	}
	assets := os.Getenv(assetsVariable)
	if assets == "" {
		assets = filepath.Join(root, "bin")
	}
	for _, binary := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(assets, binary)); err != nil {
			return fmt.Errorf("%s is missing in %s: run 'make tools', or point %s to a directory that has it", binary, assets, assetsVariable)
		}
	}
	definitions, err := definitions()
	if err != nil {
		return err
	}
	metal3 := filepath.Join(root, "bin", "crds", "metal3")
	if _, err := os.Stat(metal3); err != nil {
		return fmt.Errorf("the definitions of Metal3 are missing in %s: run 'make tools'", metal3)
	}
	e.Scheme = Scheme()
	e.envtest = &envtest.Environment{
		BinaryAssetsDirectory: assets,
		Scheme:                e.Scheme,
		CRDs:                  definitions,
		CRDDirectoryPaths:     []string{metal3},
		ErrorIfCRDPathMissing: true,
		// By default a server has 20 seconds to start, and ten for the definitions.
		ControlPlaneStartTimeout: poll.Patience(),
		ControlPlaneStopTimeout:  poll.Patience(),
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: poll.Patience()},
	}
	if err := e.reservePorts(); err != nil {
		return err
	}
	flags, err := audit.Flags(os.Getenv(audit.DirectoryVariable), "test")
	if err != nil {
		return err
	}
	for _, flag := range slices.Concat(flags, e.Flags) {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		e.envtest.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
	if e.Config, err = e.envtest.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting an API server from %s, %w", assets, err), e.envtest.Stop())
	}
	e.Config.QPS = -1
	if lag := os.Getenv(lagVariable); lag != "" {
		most, err := time.ParseDuration(lag)
		if err != nil || most <= 0 {
			return errors.Join(fmt.Errorf("%s is %q: it must be a duration above 0, such as 300ms", lagVariable, lag), e.envtest.Stop())
		}
		e.Config.Wrap(faults.LateWatches(most))
	}
	if e.Client, err = client.NewWithWatch(e.Config, client.Options{Scheme: e.Scheme}); err != nil {
		return errors.Join(fmt.Errorf("making a client, %w", err), e.envtest.Stop())
	}
	return nil
}

// reservePorts sets what etcd and the API server listen on. envtest's own choice is a port that others may take before it is used.
func (e *Environment) reservePorts() error {
	serving, err := freeport.Reserve(1)
	if err != nil {
		return err
	}
	server := e.envtest.ControlPlane.GetAPIServer()
	server.SecureServing.Address, server.SecureServing.Port = "127.0.0.1", strconv.Itoa(serving[0])
	clients, err := freeport.Address()
	if err != nil {
		return err
	}
	peers, err := freeport.Address()
	if err != nil {
		return err
	}
	e.envtest.ControlPlane.Etcd = &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: clients}}
	e.envtest.ControlPlane.Etcd.Configure().Set("listen-peer-urls", "http://"+peers)
	return nil
}

// definitions are the CRDs of this project and of Karpenter.
func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	management, err := apis.ManagementCRDs()
	if err != nil {
		return nil, err
	}
	tenant, err := apis.TenantCRDs()
	if err != nil {
		return nil, err
	}
	karpenters, err := apis.KarpenterCRDs()
	if err != nil {
		return nil, err
	}
	return slices.Concat(management, tenant, karpenters), nil
}

// RepositoryRoot is the nearest directory above the test that holds go.mod: tests run in the folder of their package.
func RepositoryRoot() (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository, %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory, nil
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return "", errors.New("looking for the repository, no go.mod above the working directory")
		}
		directory = parent
	}
}
