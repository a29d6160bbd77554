// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

const (
	serviceCIDR = "10.96.0.0/16"
	// podCIDR is the default network of the pods.
	podCIDR = "10.244.0.0/16"
)

// Options of a cluster.
type Options struct {
	// Name of the cluster. It prefixes the names of its processes and its keys in etcd.
	Name string
	// Dir is where certificates and logs go, in Dir/NAME, and the administrator's kubeconfig file, Dir/NAME.kubeconfig.
	Dir string
	// Binaries are the directories of the programs.
	Binaries Binaries
	// Processes runs the programs.
	Processes *process.Supervisor
	// Etcd is that of another cluster; nil starts one, in Dir/etcd.
	Etcd *Etcd
	// Address is what the API server listens on, for servers that are not on this machine's loopback to join: an address of
	// an interface of this machine. Empty is loopback.
	Address string
	// Controllers runs those controllers that a cluster needs which only stores objects: garbage collection and service accounts.
	Controllers bool
	// Nodes is for a cluster with nodes: it runs a scheduler and all controllers, and has the authorization, the bootstrap tokens
	// and what kubeadm makes, by which nodes join.
	Nodes bool
	// PodCIDR is the network of the pods of all nodes, of which each node gets a part of 24 bits, or of 64 of an IPv6 network.
	// Empty is 10.244.0.0/16.
	PodCIDR string
	// ServiceCIDR is the network of the services, of the family of Address. Empty is 10.96.0.0/16. Both may be one network of each
	// family, separated by a comma.
	ServiceCIDR string
	// Packed are resources of which the scheduler fills one node before the next, in addition to those of
	// config/scheduler. None leaves the scheduler to its defaults, which spread pods.
	Packed []corev1.ResourceName
	// Scheduler is the configuration of the scheduler, in place of that of Packed. Its kubeconfig is replaced.
	Scheduler []byte
	// APIServerFlags are more flags for the API server.
	APIServerFlags []string
	// FeatureGates are the flag of that name of the API server, the controller-manager and the scheduler. Empty leaves them alone.
	FeatureGates string
	// Prepare installs what the cluster is to have, for example by Management, while controllers are started; nil installs nothing.
	Prepare func(context.Context, client.Client) error
}

// A Cluster is a running control plane. Its processes end with the supervisor of its Options.
type Cluster struct {
	options   Options
	authority *pki.Authority
	port      int

	// Etcd has the cluster's data.
	Etcd *Etcd
	// Server is the URL of the API server.
	Server string
	// Kubeconfig is the path of the administrator's kubeconfig file.
	Kubeconfig string
	// REST is the administrator's access. Callers copy it before they change it.
	REST *rest.Config
	// Client is the administrator's. It reads from the API server itself.
	Client client.WithWatch
}

// Start starts a cluster, and returns when its API server serves, its controllers work and it is prepared. On an error, the caller
// closes the supervisor, which ends what was started.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := newCluster(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	if options.Controllers || options.Nodes {
		group.Go(func() error { return c.startControllers(ctx) })
	}
	if options.Prepare != nil {
		group.Go(func() error { return options.Prepare(ctx, c.Client) })
	}
	return c, group.Wait()
}

// newCluster starts etcd, if the cluster is to have one of its own, and makes certificates and kubeconfig files.
func newCluster(ctx context.Context, options Options) (c *Cluster, err error) {
	options.Address, options.PodCIDR = cmp.Or(options.Address, loopback), cmp.Or(options.PodCIDR, podCIDR)
	options.ServiceCIDR = cmp.Or(options.ServiceCIDR, serviceCIDR)
	if options.Etcd == nil {
		if options.Etcd, err = StartEtcd(ctx, EtcdOptions{
			Dir: options.Dir, Binaries: options.Binaries, Processes: options.Processes,
		}); err != nil {
			return nil, err
		}
	}
	ports, err := freeport.Reserve(1)
	if err != nil {
		return nil, err
	}
	c = &Cluster{
		options: options, Etcd: options.Etcd, port: ports[0],
		Server:     "https://" + net.JoinHostPort(options.Address, strconv.Itoa(ports[0])),
		Kubeconfig: filepath.Join(options.Dir, options.Name+".kubeconfig"),
	}
	if c.authority, err = pki.NewAuthority("sandbox-"+options.Name, clock.RealClock{}); err != nil {
		return nil, err
	}
	if err := c.writePKI(); err != nil {
		return nil, err
	}
	// Privileges are granted by group: only the administrator is in system:masters.
	if err := c.WriteKubeconfig(c.Kubeconfig, "sandbox-admin", "system:masters"); err != nil {
		return nil, err
	}
	for user, path := range map[string]string{
		"system:kube-controller-manager": c.pki(controllerManagerKubeconfig), "system:kube-scheduler": c.pki(schedulerKubeconfig),
	} {
		if err := c.WriteKubeconfig(path, user); err != nil {
			return nil, err
		}
	}
	if c.REST, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("loading the administrator's kubeconfig of the %s cluster, %w", options.Name, err)
	}
	// A client-side rate limit would slow the set-up down.
	c.REST.QPS = -1
	return c, nil
}

// dir is where the cluster's own files are.
func (c *Cluster) dir() string { return filepath.Join(c.options.Dir, c.options.Name) }

// WriteKubeconfig writes a kubeconfig file for a user of this cluster, with the rights of its groups and of RBAC.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	return c.authority.WriteKubeconfig(path, "sandbox-"+c.options.Name, c.Server, user, groups...)
}

// CertificateAuthority returns the cluster's CA certificate, PEM.
func (c *Cluster) CertificateAuthority() []byte { return c.authority.Certificate() }

// Files of the processes.
const (
	controllerManagerKubeconfig = "controller-manager.kubeconfig"
	schedulerKubeconfig         = "scheduler.kubeconfig"
)

// pki is the path of a file of the processes: a certificate, a key or a kubeconfig.
func (c *Cluster) pki(name string) string { return filepath.Join(c.dir(), "pki", name) }

func (c *Cluster) writePKI() error {
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	first, _, _ := strings.Cut(c.options.ServiceCIDR, ",")
	services, err := netip.ParsePrefix(first)
	if err != nil {
		return fmt.Errorf("reading the network of the services of the %s cluster, %w", c.options.Name, err)
	}
	// The kubernetes service has the first address.
	serviceIP := services.Masked().Addr().Next()
	serving, err := c.authority.Serving("kube-apiserver", names, []net.IP{net.ParseIP(c.options.Address), serviceIP.AsSlice()})
	if err != nil {
		return err
	}
	kubelet, err := c.authority.Client("kube-apiserver-kubelet-client", "kubeadm:cluster-admins")
	if err != nil {
		return err
	}
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	return errors.Join(
		c.authority.Pair().WriteFiles(c.pki(""), "ca"), serving.WriteFiles(c.pki(""), "apiserver"),
		kubelet.WriteFiles(c.pki(""), "apiserver-kubelet-client"),
		pki.WriteFile(c.pki("sa.key"), private), pki.WriteFile(c.pki("sa.pub"), public),
	)
}

func (c *Cluster) start(ctx context.Context, program string, rank int, args []string) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	name := c.options.Name + "-" + program
	return name, c.options.Binaries.Start(c.options.Processes, program, process.Spec{Name: name, Args: args, Rank: rank, Restart: true})
}

func (c *Cluster) clientset() (kubernetes.Interface, error) {
	clientset, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return nil, fmt.Errorf("making a client of the %s cluster, %w", c.options.Name, err)
	}
	return clientset, nil
}
