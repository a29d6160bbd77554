// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
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
}

// StartEtcd starts etcd and returns when it serves.
func StartEtcd(ctx context.Context, options EtcdOptions) (*Etcd, error) {
	options.Name, options.Address = cmp.Or(options.Name, EtcdName), cmp.Or(options.Address, loopback)
	ports, err := freeport.Reserve(2)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(options.Dir, options.Name)
	pkiDir := filepath.Join(dir, "pki")
	servingCert, servingKey := filepath.Join(pkiDir, "serving.crt"), filepath.Join(pkiDir, "serving.key")
	etcd := &Etcd{
		URL: fmt.Sprintf("https://%s:%d", options.Address, ports[0]), Dir: dir, CAFile: filepath.Join(pkiDir, "ca.crt"),
		CertFile: filepath.Join(pkiDir, "client.crt"), CertKey: filepath.Join(pkiDir, "client.key"),
	}
	clientTLS, err := writeEtcdCertificates(pkiDir, options.Address)
	if err != nil {
		return nil, err
	}
	peerURL := fmt.Sprintf("https://%s:%d", loopback, ports[1])
	err = options.Binaries.Start(options.Processes, "etcd", process.Spec{
		Name: options.Name, Rank: RankEtcd, Restart: true,
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
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS}}
	defer client.CloseIdleConnections()
	return etcd, AwaitURL(ctx, "etcd to be ready", client, etcd.URL+"/readyz")
}

// writeEtcdCertificates returns the settings of clients.
func writeEtcdCertificates(dir, address string) (*tls.Config, error) {
	authority, err := pki.NewAuthority("sandbox-etcd", clock.RealClock{})
	if err != nil {
		return nil, err
	}
	client, err := authority.Client("kube-apiserver")
	if err != nil {
		return nil, err
	}
	serving, err := authority.Serving("etcd", []string{"localhost"}, []net.IP{net.ParseIP(loopback), net.ParseIP(address)})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		pki.WriteFile(filepath.Join(dir, "ca.crt"), authority.Certificate()),
		client.WriteFiles(dir, "client"), serving.WriteFiles(dir, "serving"),
	); err != nil {
		return nil, err
	}
	keyPair, err := tls.X509KeyPair(client.Certificate, client.Key)
	if err != nil {
		return nil, fmt.Errorf("loading etcd's client certificate, %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate())
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{keyPair}, MinVersion: tls.VersionTLS12}, nil
}
