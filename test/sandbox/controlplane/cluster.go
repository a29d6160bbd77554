// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const (
	serviceCIDR = "10.96.0.0/16"
	// podCIDR is the default network of the pods.
	podCIDR = "10.244.0.0/16"
)

// Config of the control plane of one cluster.
type Config struct {
	// Name of the cluster. It prefixes the names of its processes and its keys in etcd.
	Name string
	// Dir is where certificates go.
	Dir string
	// Kubeconfig is where the administrator's kubeconfig file goes.
	Kubeconfig string
	Binaries   Binaries
	Supervisor *process.Supervisor
	Clock      clock.PassiveClock
	Etcd       *Etcd
	// Address is what the API server listens on, for servers that are not on this machine's loopback to join: an address of
	// an interface of this machine. Empty is loopback.
	Address string
	// Port is the port of the API server.
	Port int
	// Nodes is for a cluster with nodes: it runs a scheduler, all controllers, and the authorization and bootstrap
	// tokens by which nodes join. Without it, the cluster only stores objects and collects garbage.
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
	// APIServerFlags are more flags for the API server.
	APIServerFlags []string
}

// A Cluster is a control plane. Its parts are started one by one, in the order of its Start methods.
type Cluster struct {
	config    Config
	authority *pki.Authority
	files     files

	// Server is the URL of the API server.
	Server string
	// Kubeconfig is the path of the administrator's kubeconfig file.
	Kubeconfig string
	// REST is the administrator's access. Callers copy it before they change it.
	REST *rest.Config
}

// files are the paths of the processes' files.
type files struct {
	caCert, caKey           string
	servingCert, servingKey string
	kubeletCert, kubeletKey string
	tokenKey, tokenPublic   string
	controllerManager       string
	scheduler               string
}

// New makes the certificates and kubeconfig files of a cluster. Nothing runs yet.
func New(config Config) (*Cluster, error) {
	config.Address, config.PodCIDR = cmp.Or(config.Address, loopback), cmp.Or(config.PodCIDR, podCIDR)
	config.ServiceCIDR = cmp.Or(config.ServiceCIDR, serviceCIDR)
	authority, err := pki.NewAuthority("sandbox-"+config.Name, config.Clock)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		config: config, authority: authority,
		Server:     "https://" + net.JoinHostPort(config.Address, strconv.Itoa(config.Port)),
		Kubeconfig: config.Kubeconfig,
	}
	if err := c.writePKI(); err != nil {
		return nil, err
	}
	// Privileges are granted by group: only the administrator is in system:masters.
	if err := c.WriteKubeconfig(c.Kubeconfig, "sandbox-admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := c.WriteKubeconfig(c.files.controllerManager, "system:kube-controller-manager"); err != nil {
		return nil, err
	}
	if config.Nodes {
		if err := c.WriteKubeconfig(c.files.scheduler, "system:kube-scheduler"); err != nil {
			return nil, err
		}
	}
	if c.REST, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return nil, fmt.Errorf("loading the administrator's kubeconfig of the %s cluster, %w", config.Name, err)
	}
	// The administrator sets the sandbox up: a client-side rate limit would slow that down.
	c.REST.QPS, c.REST.Burst = 200, 400
	return c, nil
}

// WriteKubeconfig writes a kubeconfig file for a user of this cluster, with the rights of its groups and of RBAC.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	return c.authority.WriteKubeconfig(path, "sandbox-"+c.config.Name, c.Server, user, groups...)
}

// CertificateAuthority returns the cluster's CA certificate, PEM.
func (c *Cluster) CertificateAuthority() []byte { return c.authority.Certificate() }

func (c *Cluster) writePKI() (err error) {
	dir := filepath.Join(c.config.Dir, "pki")
	c.files.controllerManager = filepath.Join(dir, "controller-manager.kubeconfig")
	c.files.scheduler = filepath.Join(dir, "scheduler.kubeconfig")

	if c.files.caCert, c.files.caKey, err = c.authority.Pair().WriteFiles(dir, "ca"); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	first, _, _ := strings.Cut(c.config.ServiceCIDR, ",")
	services, err := netip.ParsePrefix(first)
	if err != nil {
		return fmt.Errorf("reading the network of the services of the %s cluster, %w", c.config.Name, err)
	}
	// The kubernetes service has the first address.
	serviceIP := services.Masked().Addr().Next()
	serving, err := c.authority.Serving("kube-apiserver", names, []net.IP{net.ParseIP(c.config.Address), serviceIP.AsSlice()})
	if err != nil {
		return err
	}
	if c.files.servingCert, c.files.servingKey, err = serving.WriteFiles(dir, "apiserver"); err != nil {
		return err
	}
	kubelet, err := c.authority.Client("kube-apiserver-kubelet-client", "kubeadm:cluster-admins")
	if err != nil {
		return err
	}
	if c.files.kubeletCert, c.files.kubeletKey, err = kubelet.WriteFiles(dir, "apiserver-kubelet-client"); err != nil {
		return err
	}
	private, public, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	c.files.tokenKey, c.files.tokenPublic = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	if err := pki.WriteFile(c.files.tokenKey, private); err != nil {
		return err
	}
	return pki.WriteFile(c.files.tokenPublic, public)
}

func (c *Cluster) start(ctx context.Context, program string, rank int, args []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	path, err := c.config.Binaries.Find(program)
	if err != nil {
		return "", err
	}
	name := c.config.Name + "-" + program
	return name, c.config.Supervisor.Start(process.Spec{Name: name, Path: path, Args: args, Rank: rank, Restart: true})
}

func (c *Cluster) clientset() (kubernetes.Interface, error) {
	clientset, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return nil, fmt.Errorf("making a client of the %s cluster, %w", c.config.Name, err)
	}
	return clientset, nil
}
