// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"crypto/sha256"
	"crypto/x509/pkix"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

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
