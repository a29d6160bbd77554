// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
)

// EtcdName is the name of etcd's process, if it is the only one.
const EtcdName = "etcd"

// EtcdOptions are options of etcd.
type EtcdOptions struct {
	// Name of the process. Default: EtcdName.
	Name string
	// Dir is where data and certificates go, in Dir/NAME.
	Dir       string
	Binaries  Binaries
	Processes *process.Supervisor
	// Address is what etcd listens on for clients that are not on this machine's loopback. Empty is loopback.
	Address string
}

// Etcd is a running etcd of one member, which requires client certificates.
type Etcd struct {
	URL string
	// Dir has the data in "data".
	Dir string
	// CAFile, CertFile and CertKey are for clients.
	CAFile, CertFile, CertKey string
	clientTLS                 *tls.Config
}

// StartEtcd starts etcd and returns when it serves.
func StartEtcd(ctx context.Context, options EtcdOptions) (*Etcd, error) {
	path, err := options.Binaries.Find("etcd")
	if err != nil {
		return nil, err
	}
	options.Name, options.Address = cmp.Or(options.Name, EtcdName), cmp.Or(options.Address, loopback)
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	etcd := &Etcd{URL: fmt.Sprintf("https://%s:%d", options.Address, ports[0]), Dir: filepath.Join(options.Dir, options.Name)}
	servingCert, servingKey, err := etcd.writeCertificates(options)
	if err != nil {
		return nil, err
	}
	peerURL := fmt.Sprintf("https://%s:%d", loopback, ports[1])
	err = options.Processes.Start(process.Spec{
		Name: options.Name, Path: path, Rank: RankEtcd, Restart: true,
		Args: []string{
			"--name=sandbox", "--data-dir=" + filepath.Join(etcd.Dir, "data"),
			"--listen-client-urls=" + etcd.URL, "--advertise-client-urls=" + etcd.URL,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=sandbox=" + peerURL,
			"--client-cert-auth", "--trusted-ca-file=" + etcd.CAFile, "--cert-file=" + servingCert, "--key-file=" + servingKey,
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + etcd.CAFile,
			"--peer-cert-file=" + servingCert, "--peer-key-file=" + servingKey,
			// A throw-away cluster need not survive a power cut, only a crash of etcd, and the page cache does.
			"--unsafe-no-fsync",
			"--snapshot-count=10000", "--auto-compaction-mode=periodic", "--auto-compaction-retention=10m",
			"--log-level=warn",
			// The JSON gateway would call etcd with the serving certificate, which fails.
			"--enable-grpc-gateway=false",
		},
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: etcd.clientTLS}}
	defer client.CloseIdleConnections()
	return etcd, AwaitURL(ctx, "etcd to be ready", client, etcd.URL+"/readyz")
}

func (e *Etcd) writeCertificates(options EtcdOptions) (cert, key string, err error) {
	dir := filepath.Join(e.Dir, "pki")
	authority, err := pki.NewAuthority("sandbox-etcd", clock.RealClock{})
	if err != nil {
		return "", "", err
	}
	e.CAFile = filepath.Join(dir, "ca.crt")
	if err := pki.WriteFile(e.CAFile, authority.Certificate()); err != nil {
		return "", "", err
	}
	client, err := authority.Client("kube-apiserver")
	if err != nil {
		return "", "", err
	}
	if e.CertFile, e.CertKey, err = client.WriteFiles(dir, "client"); err != nil {
		return "", "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate())
	keyPair, err := tls.X509KeyPair(client.Certificate, client.Key)
	if err != nil {
		return "", "", fmt.Errorf("loading etcd's client certificate, %w", err)
	}
	e.clientTLS = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{keyPair}, MinVersion: tls.VersionTLS12}
	serving, err := authority.Serving("etcd", []string{"localhost"}, []net.IP{net.ParseIP(loopback), net.ParseIP(options.Address)})
	if err != nil {
		return "", "", err
	}
	return serving.WriteFiles(dir, "serving")
}
