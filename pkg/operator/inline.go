// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// inlineFields are the fields of clusters and users that are pure data: an address, the data to verify it, and
// credentials. All other fields, and any that a later client-go adds, run programs, read files of the process, send its
// requests elsewhere, or send them as another user.
var inlineFields = []string{
	"server", "tls-server-name", "certificate-authority-data", "disable-compression",
	"token", "client-certificate-data", "client-key-data",
	"extensions", // client-go does not read them
}

// inlineOnly returns an error that names each field that is not data, without its value. The kubeconfig has one
// context.
func inlineOnly(kubeconfig *clientcmdapi.Config) error {
	var refused []string
	for name, cluster := range kubeconfig.Clusters {
		path := "clusters[" + name + "].cluster."
		refused = append(refused, notInline[clientcmdv1.Cluster](path, cluster)...)
		if server, err := url.Parse(cluster.Server); err != nil || server.Scheme != "https" {
			refused = append(refused, path+"server (not https)")
		} else if server.User != nil || server.RawQuery != "" {
			refused = append(refused, path+"server (with a user or a query)") // messages repeat the address
		}
	}
	for name, user := range kubeconfig.AuthInfos {
		refused = append(refused, notInline[clientcmdv1.AuthInfo]("users["+name+"].user.", user)...)
	}
	if len(refused) == 0 {
		return nil
	}
	slices.Sort(refused)
	return fmt.Errorf("it has %s", strings.Join(refused, ", "))
}

// notInline returns the set fields that are not among inlineFields, by their names in the file, from the type File.
func notInline[File any](path string, object any) (refused []string) {
	value := reflect.ValueOf(object).Elem()
	for i := range value.NumField() {
		field, inFile := reflect.TypeFor[File]().FieldByName(value.Type().Field(i).Name)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if inFile && !slices.Contains(inlineFields, name) && !value.Field(i).IsZero() {
			refused = append(refused, path+name)
		}
	}
	return refused
}

// sameAddress refuses redirects. With them, a tenant's API server could send requests elsewhere from our network.
type sameAddress struct{ http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport whose idle connections it closes.
func (s sameAddress) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s sameAddress) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(request)
	if err != nil || response.Header.Get("Location") == "" || response.StatusCode < 300 || response.StatusCode > 399 {
		return response, err
	}
	return nil, errors.Join(fmt.Errorf("%s of the API server's response would redirect the request, which is not followed", response.Status),
		response.Body.Close())
}
