// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Cluster says how to reach a cluster, as set by flags.
type Cluster struct {
	// Name is the name of the cluster in messages, for example "management cluster".
	Name string
	// Prefix of the flags, "" or with a dash at its end, for example "tenant-".
	Prefix string
	// Kubeconfig is the path of a kubeconfig file. Empty: the service account of the pod.
	Kubeconfig string
	// Context of the kubeconfig. Empty: its current context.
	Context string
	// Foreign means that others than the platform may write the kubeconfig. Unless AllowUnsafe is set, it may then only
	// have addresses and credentials, and nothing that runs a program, reads a file or leads requests elsewhere.
	Foreign, AllowUnsafe bool
	// QPS and Burst limit the requests per second of this process to the API server of the cluster.
	QPS   float32
	Burst int
}

// AddFlags adds --[prefix]kubeconfig, --[prefix]kube-context, --[prefix]kube-api-qps and --[prefix]kube-api-burst, and
// for a foreign kubeconfig --[prefix]allow-unsafe-kubeconfig. The current values of the struct are the defaults.
func (c *Cluster) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Kubeconfig, c.Prefix+"kubeconfig", c.Kubeconfig,
		"Path of the kubeconfig of the "+c.Name+". If empty, the service account of the pod is used.")
	flags.StringVar(&c.Context, c.Prefix+"kube-context", c.Context,
		"Context of the kubeconfig of the "+c.Name+". If empty, its current context.")
	if c.Foreign {
		flags.BoolVar(&c.AllowUnsafe, c.Prefix+"allow-unsafe-kubeconfig", c.AllowUnsafe,
			"Accept a kubeconfig of the "+c.Name+" that has more than an https address and inline credentials, for example exec, tokenFile, "+
				"proxy-url or insecure-skip-tls-verify. Its author can then run programs in this process's pod and read its files.")
	}
	flags.Float32Var(&c.QPS, c.Prefix+"kube-api-qps", c.QPS,
		"Requests per second to the API server of the "+c.Name+" that are allowed on average.")
	flags.IntVar(&c.Burst, c.Prefix+"kube-api-burst", c.Burst,
		"Requests to the API server of the "+c.Name+" that are allowed in a burst.")
}

// RESTConfig loads the kubeconfig. userAgent is the name of the binary; its version is added. The error is one sentence
// with the file, its fault, and the flag to set. The returned context ends when the file gets other credentials or
// another address. Then everything stops as with a signal, and the process is started again.
func (c *Cluster) RESTConfig(ctx context.Context, userAgent string) (context.Context, *rest.Config, error) {
	config, kubeconfig, err := c.load()
	if err != nil {
		return nil, nil, err
	}
	if c.QPS <= 0 || c.Burst <= 0 {
		return nil, nil, fmt.Errorf("--%skube-api-qps is %v and --%skube-api-burst is %d: both must be greater than zero", c.Prefix, c.QPS,
			c.Prefix, c.Burst)
	}
	if c.Foreign && !c.AllowUnsafe {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sameAddress{next} })
	}
	config.QPS, config.Burst = c.QPS, c.Burst
	config.UserAgent = userAgent + "/" + version.Get().GitVersion
	if kubeconfig != nil {
		ctx = c.untilChanged(ctx, clock.RealClock{}, kubeconfig)
	}
	return ctx, config, nil
}

// reloadPeriod is how often a kubeconfig is read again. Reading it notices every kind of change: in the file, by
// another file with its name, or, where a Secret is mounted, by a link to another directory.
const reloadPeriod = 5 * time.Second

// untilChanged returns a context that ends when the kubeconfig differs from the loaded one. It ignores the files that
// the kubeconfig names: client-go itself reads them again.
func (c *Cluster) untilChanged(ctx context.Context, clk clock.Clock, loaded *clientcmdapi.Config) context.Context {
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer end()
		for problem := ""; ; {
			select {
			case <-ctx.Done():
				return
			case <-clk.After(reloadPeriod):
			}
			switch _, now, err := c.load(); {
			case err == nil && !equality.Semantic.DeepEqual(now, loaded):
				klog.FromContext(ctx).Info("The kubeconfig has changed: the process ends, and uses it when it is started again",
					"file", c.Kubeconfig, "cluster", c.Name)
				return
			case err == nil:
				problem = ""
			case err.Error() != problem: // it may be being written
				problem = err.Error()
				klog.FromContext(ctx).Info("The kubeconfig cannot be read again; what was read before stays in use", "file", c.Kubeconfig,
					"cluster", c.Name, "because", problem)
			}
		}
	}()
	return ctx
}

// load also returns the chosen context of the kubeconfig, or nil if there is no kubeconfig.
func (c *Cluster) load() (*rest.Config, *clientcmdapi.Config, error) {
	flag := "--" + c.Prefix + "kubeconfig"
	if c.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, nil, fmt.Errorf("no kubeconfig for the %s and not running in a pod: set %s or %s", c.Name, flag,
				EnvName(c.Prefix+"kubeconfig"))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("the pod's service account cannot be used for the %s, %w: set %s", c.Name, err, flag)
		}
		return config, nil, nil
	}
	subject := fmt.Sprintf("kubeconfig %s of the %s", c.Kubeconfig, c.Name)
	data, err := os.ReadFile(c.Kubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%s does not exist: set %s to an existing file", subject, flag)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%s may not be read by this user: change the file's permissions or set %s", subject, flag)
	case err != nil:
		return nil, nil, fmt.Errorf("%s cannot be read, %w: set %s to a readable file", subject, err, flag)
	}
	kubeconfig, err := clientcmd.Load(data)
	if err != nil { // it can quote the file, and so a token
		return nil, nil, fmt.Errorf("%s is not a kubeconfig: correct it or set %s to another file; 'kubectl config view --kubeconfig' says why",
			subject, flag)
	}
	chosen := cmp.Or(c.Context, kubeconfig.CurrentContext)
	contexts := slices.Sorted(maps.Keys(kubeconfig.Contexts))
	listed := cmp.Or(strings.Join(contexts, ", "), "none")
	switch {
	case chosen == "":
		return nil, nil, fmt.Errorf("%s has no current-context: set one in the file, or --%skube-context (it has: %s)", subject, c.Prefix,
			listed)
	case !slices.Contains(contexts, chosen):
		return nil, nil, fmt.Errorf("%s has no context %q: set --%skube-context to one of its contexts (it has: %s)", subject, chosen, c.Prefix,
			listed)
	}
	kubeconfig.CurrentContext = chosen
	err = clientcmdapi.MinifyConfig(kubeconfig) // another context may change
	if err == nil && c.Foreign && !c.AllowUnsafe {
		if err := inlineOnly(kubeconfig); err != nil {
			return nil, nil, fmt.Errorf("%s is refused, %w: only an https address and inline credentials (token, client-certificate-data and "+
				"client-key-data, certificate-authority-data) are accepted; correct it, or set "+
				"--%[3]sallow-unsafe-kubeconfig if its author is trusted "+
				"with this pod", subject, err, c.Prefix)
		}
	}
	var config *rest.Config
	if err == nil {
		config, err = clientConfig(kubeconfig, c.Kubeconfig)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s cannot be used, %w: correct its context %q or set %s to another file", subject, err, chosen, flag)
	}
	return config, kubeconfig, nil
}

// clientConfig makes a configuration from the kubeconfig in memory. The file itself may have changed.
func clientConfig(kubeconfig *clientcmdapi.Config, file string) (*rest.Config, error) {
	resolved := kubeconfig.DeepCopy()
	for _, user := range resolved.AuthInfos { // paths inside of a kubeconfig are relative to it
		user.LocationOfOrigin = file
	}
	for _, cluster := range resolved.Clusters {
		cluster.LocationOfOrigin = file
	}
	if err := clientcmd.ResolveLocalPaths(resolved); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*resolved, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// How often to try an API server that does not answer at start, and how long one try may take.
const (
	startupPollInterval   = time.Second
	startupRequestTimeout = 5 * time.Second
)

// Kind is a kind that the API of a cluster must have.
type Kind struct {
	schema.GroupVersionKind
	// Remedy says how to install the kind, for example "install baremetal-operator's CRDs".
	Remedy string
}

// Preflight returns once the API server of a cluster answers and has the kinds. See WaitForAPI and RequireKinds.
func (o *Options) Preflight(ctx context.Context, config *rest.Config, cluster string, kinds ...Kind) error {
	if err := WaitForAPI(ctx, config, cluster, o.StartupTimeout); err != nil {
		return err
	}
	return RequireKinds(config, cluster, kinds...)
}

// WaitForAPI returns once the API server answers. It gives up after timeout, and at once if the credentials are
// refused: waiting does not mend credentials. The error is one sentence with the server and the reason.
func WaitForAPI(ctx context.Context, config *rest.Config, cluster string, timeout time.Duration) error {
	client, err := discoveryClient(config)
	if err != nil {
		return fmt.Errorf("making a client for the %s at %s, %w", cluster, config.Host, err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, startupPollInterval, timeout, true, func(context.Context) (bool, error) {
		_, last = client.ServerVersion()
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsUnauthorized(last), apierrors.IsForbidden(last):
			return false, last
		}
		klog.FromContext(ctx).Info("Waiting for the API server", "cluster", cluster, "server", config.Host, "err", last.Error())
		return false, nil
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(last), apierrors.IsForbidden(last):
		return fmt.Errorf("the %s at %s refuses the credentials of its kubeconfig, %w: renew them", cluster, config.Host, last)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("the API server of the %s at %s did not answer within %v, %w: check that it runs and that the kubeconfig names the "+
		"right server",
		cluster, config.Host, timeout, last)
}

// RequireKinds returns a *MissingKindsError that names missing kinds and their remedies, or another error without an
// answer.
func RequireKinds(config *rest.Config, cluster string, kinds ...Kind) error {
	client, err := discoveryClient(config)
	if err != nil {
		return fmt.Errorf("making a client for the %s at %s, %w", cluster, config.Host, err)
	}
	served := map[schema.GroupVersion][]string{}
	var missing []string
	for _, kind := range kinds {
		version := kind.GroupVersion()
		if _, asked := served[version]; !asked {
			served[version] = []string{}
			resources, err := client.ServerResourcesForGroupVersion(version.String())
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("asking the %s at %s for its kinds of %s, %w", cluster, config.Host, version, err)
			}
			if err == nil {
				for _, resource := range resources.APIResources {
					served[version] = append(served[version], resource.Kind)
				}
			}
		}
		if !slices.Contains(served[version], kind.Kind) {
			missing = append(missing,
				fmt.Sprintf("%s (%s) is not installed in the %s at %s: %s", kind.Kind, version, cluster, config.Host, kind.Remedy))
		}
	}
	if len(missing) > 0 {
		return &MissingKindsError{missing}
	}
	return nil
}

// MissingKindsError means that a cluster answers but lacks kinds.
type MissingKindsError struct{ missing []string }

// Error names each kind and how to install it.
func (e *MissingKindsError) Error() string { return strings.Join(e.missing, "; ") }

func discoveryClient(config *rest.Config) (*discovery.DiscoveryClient, error) {
	quick := rest.CopyConfig(config)
	quick.Timeout = startupRequestTimeout
	return discovery.NewDiscoveryClientForConfig(quick)
}
