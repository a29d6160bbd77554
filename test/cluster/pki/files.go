// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// fileMode denies access to other users of the machine: every file here is a key or a credential.
const fileMode = 0o600

// WriteFile writes one file that only its owner can read, and makes its directory.
func WriteFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of %s, %w", path, err)
	}
	if err := os.WriteFile(path, content, fileMode); err != nil {
		return fmt.Errorf("writing %s, %w", path, err)
	}
	return nil
}

// WriteFiles writes the certificate to NAME.crt and the key to NAME.key in dir, and returns both paths.
func (p Pair) WriteFiles(dir, name string) (certificate, key string, err error) {
	certificate, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := WriteFile(certificate, p.Certificate); err != nil {
		return "", "", err
	}
	return certificate, key, WriteFile(key, p.Key)
}

// WriteKubeconfig makes a client certificate for the user and writes a kubeconfig file that reaches server with it.
// cluster is the name of the cluster in the file, so that such files can be merged.
func (a *Authority) WriteKubeconfig(path, cluster, server, user string, groups ...string) error {
	pair, err := a.Client(user, groups...)
	if err != nil {
		return err
	}
	context := user + "@" + cluster
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: a.certPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	}
	content, err := clientcmd.Write(config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s, %w", user, err)
	}
	return WriteFile(path, content)
}
