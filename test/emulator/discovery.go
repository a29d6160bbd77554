// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"crypto/sha256"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// discovered is a discovered cluster.
type discovered struct {
	server string
	caData []byte
}

// discover finds the cluster as kubeadm does: it reads cluster-info from an unverified API server, and accepts it only
// if it is signed with the token and has a CA that the user data pins.
func (b *boot) discover(ctx context.Context, join bootstrap.Join) (discovered, error) {
	endpoint := "https://" + join.APIServerEndpoint
	var info map[string]string
	var found discovered
	err := b.retryJoin(ctx, func(ctx context.Context) (err error) {
		if info, err = clusterInfo(ctx, &rest.Config{Host: endpoint, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}); err != nil {
			return err
		}
		if info[bootstrapapi.JWSSignatureKeyPrefix+join.Token.ID()] == "" {
			// The signature appears a moment after the token.
			return fmt.Errorf("cluster-info is not signed with token %s: the token does not exist or has expired", join.Token.ID())
		}
		if found, err = verify(info, join); err != nil {
			return &permanentError{err}
		}
		return nil
	})
	if err != nil {
		return discovered{}, err
	}
	// Read again, verified by the CA: the API server must belong to that cluster.
	return found, b.retryJoin(ctx, func(ctx context.Context) error {
		again, err := clusterInfo(ctx, &rest.Config{Host: endpoint, TLSClientConfig: rest.TLSClientConfig{CAData: found.caData}})
		if err != nil {
			return err
		}
		if again[bootstrapapi.KubeConfigKey] != info[bootstrapapi.KubeConfigKey] {
			return &permanentError{errors.New("cluster-info differs when read through verified TLS")}
		}
		return nil
	})
}

// clusterInfo reads the public ConfigMap without credentials.
func clusterInfo(ctx context.Context, config *rest.Config) (map[string]string, error) {
	clientset, disconnect, err := connect(config)
	if err != nil {
		return nil, err
	}
	defer disconnect()
	configMap, err := clientset.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstrapapi.ConfigMapClusterInfo, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading cluster-info, %w", err)
	}
	return configMap.Data, nil
}

// verify returns the cluster of a signed cluster-info, or an error if it cannot be trusted.
func verify(info map[string]string, join bootstrap.Join) (discovered, error) {
	kubeconfig := info[bootstrapapi.KubeConfigKey]
	signature := info[bootstrapapi.JWSSignatureKeyPrefix+join.Token.ID()]
	if !jws.DetachedTokenIsValid(signature, kubeconfig, join.Token.ID(), join.Token.SecretHalf()) {
		return discovered{}, fmt.Errorf("the signature of cluster-info was not made with token %s: the token is wrong, or it is another cluster",
			join.Token.ID())
	}
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return discovered{}, fmt.Errorf("cluster-info holds no kubeconfig, %w", err)
	}
	if len(config.Clusters) != 1 {
		return discovered{}, fmt.Errorf("cluster-info names %d clusters instead of one", len(config.Clusters))
	}
	for _, described := range config.Clusters {
		certs, err := certutil.ParseCertsPEM(described.CertificateAuthorityData)
		if err != nil {
			return discovered{}, fmt.Errorf("cluster-info holds no CA certificate, %w", err)
		}
		for _, cert := range certs {
			if slices.Contains(join.CACertHashes, bootstrap.CACertHash(cert)) {
				return discovered{server: described.Server, caData: described.CertificateAuthorityData}, nil
			}
		}
	}
	return discovered{}, fmt.Errorf("no CA in cluster-info matches the %d pinned hashes: it is another cluster", len(join.CACertHashes))
}

// tlsBootstrap requests a client certificate of the node with the token, as the kubelet does. The private key stays on
// the server.
func (b *boot) tlsBootstrap(ctx context.Context, known discovered, join bootstrap.Join) (*rest.Config, error) {
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("making a key, %w", err)
	}
	clientset, disconnect, err := connect(&rest.Config{
		Host:            known.server,
		TLSClientConfig: rest.TLSClientConfig{CAData: known.caData},
		BearerToken:     join.Token.Reveal(),
	})
	if err != nil {
		return nil, err
	}
	defer disconnect()
	var certPEM []byte
	if err := b.retryJoin(ctx, func(ctx context.Context) (err error) {
		if err := refuseTakenName(ctx, clientset, join.NodeName); err != nil {
			return err
		}
		certPEM, err = RequestCertificate(ctx, clientset, keyPEM, join.NodeName)
		return err
	}); err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            known.server,
		TLSClientConfig: rest.TLSClientConfig{CAData: known.caData, CertData: certPEM, KeyData: keyPEM},
	}, nil
}

// refuseTakenName is kubeadm's check that no Node with the name is Ready.
func refuseTakenName(ctx context.Context, clientset kubernetes.Interface, name string) error {
	node, err := clientset.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for a Node %s, %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return &permanentError{fmt.Errorf("a Node %s exists already and is Ready", name)}
		}
	}
	return nil
}

// RequestCertificate requests a client certificate of the node of that name with the credentials of the clientset, and waits until
// it is approved and signed. keyPEM is its private key.
func RequestCertificate(ctx context.Context, clientset kubernetes.Interface, keyPEM []byte, nodeName string) ([]byte, error) {
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the key, %w", err)
	}
	subject := &pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}}
	request, err := certutil.MakeCSR(key, subject, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making a signing request, %w", err)
	}
	// Named after the key, so that a second attempt finds the request of the first.
	name := fmt.Sprintf("node-csr-%x", sha256.Sum256(keyPEM))[:40]
	reqName, reqUID, err := csr.RequestCertificateWithContext(ctx, clientset, request, name,
		certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, key)
	if err != nil {
		return nil, err
	}
	certificate, err := csr.WaitForCertificate(ctx, clientset, reqName, reqUID)
	if err != nil {
		return nil, fmt.Errorf("waiting for request %s to be approved and signed, %w", reqName, err)
	}
	return certificate, nil
}

// connect returns a client and a function that closes its connections. Without these settings client-go would cache the
// transport, with the keys of every server that ever existed, and limit the rate, which the callers' back-off does.
func connect(config *rest.Config) (kubernetes.Interface, func(), error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "emulated-server"
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s, %w", config.Host, err)
	}
	return clientset, func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) }, nil
}
