// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"fmt"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

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
