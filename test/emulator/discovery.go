// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
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
