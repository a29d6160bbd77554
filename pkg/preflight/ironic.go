// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	ironicsCheck = "Ironic objects"
	ironicCheck  = "Ironic"
	// minimumIronic is the microversion that baremetal-operator v0.13 requires of Ironic.
	minimumIronic = "1.89"
	// maxAnswer is how many bytes of an answer are read.
	maxAnswer = 1 << 20
)

// ironicKind is the kind of ironic-standalone-operator.
var ironicKind = schema.GroupVersionKind{Group: "ironic.metal3.io", Version: "v1alpha1", Kind: "Ironic"}

func (c *Cluster) ironics(ctx context.Context) []Result {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(ironicKind)
	err := c.Reader.List(ctx, list)
	switch {
	case isMissingKind(err):
		return []Result{{Check: ironicsCheck, Level: Skip,
			Message: "ironic-standalone-operator is not installed: Ironic is there by other means, and --ironic-url says where"}}
	case err != nil:
		return []Result{unreadable(ironicsCheck, err)}
	case len(list.Items) == 0:
		return []Result{{Check: ironicsCheck, Level: Warn, Message: "ironic-standalone-operator is installed, and there is no Ironic object",
			Remedy: "kubectl apply -f ironic.yaml (docs/metal3.md)"}}
	}
	var results []Result
	for i := range list.Items {
		results = append(results, ironicReady(&list.Items[i]))
	}
	return results
}

func ironicReady(object *unstructured.Unstructured) Result {
	name := object.GetNamespace() + "/" + object.GetName()
	result := Result{Check: "Ironic " + name, Level: OK, Message: "is ready"}
	var ironic struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ironic); err != nil {
		return Result{Check: result.Check, Level: Skip, Message: "cannot check: its status cannot be read: " + err.Error()}
	}
	ready := apimeta.FindStatusCondition(ironic.Status.Conditions, "Ready")
	switch {
	case ready == nil || ready.ObservedGeneration != object.GetGeneration():
		result.Level, result.Message = Fail, "ironic-standalone-operator has not looked at it"
		result.Remedy = "kubectl -n ironic-standalone-operator-system logs deployment/ironic-standalone-operator-controller-manager"
	case ready.Status != metav1.ConditionTrue:
		result.Level = Fail
		result.Message = "is not ready: " + conditions.Truncate(ready.Message, conditions.MaxEventNote)
		result.Remedy = shell.Command("kubectl -n %s describe ironic %s; kubectl -n %s get pods", object.GetNamespace(), object.GetName(),
			object.GetNamespace())
	}
	return result
}

// askIronic asks Ironic for its version, which needs no credentials, and for its drivers, which shows whether a
// conductor works. It sends no credentials: a demand for credentials is an answer, too.
func askIronic(ctx context.Context, client *http.Client, endpoint string) []Result {
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), "/v1"), "/")
	result := Result{Check: ironicCheck, Level: Fail, Remedy: "kubectl -n baremetal-operator-system get ironics,pods"}
	var root struct {
		Version struct {
			Version string `json:"version"`
		} `json:"version"`
	}
	status, err := getJSON(ctx, client, base+"/v1", "", &root)
	shown := properties.PublicURL(base)
	switch {
	case err != nil:
		result.Message = fmt.Sprintf("%s: %s", shown, err)
		return []Result{result}
	case status != http.StatusOK:
		result.Message = fmt.Sprintf("%s answers GET /v1 with status %d", shown, status)
		return []Result{result}
	}
	found, err := version.ParseGeneric(root.Version.Version)
	switch {
	case err != nil:
		result.Message = shown + " answers GET /v1 with something else than Ironic does"
		return []Result{result}
	case found.LessThan(version.MustParseGeneric(minimumIronic)):
		result.Message = fmt.Sprintf("%s has API version %s, and baremetal-operator v0.13 requires %s", shown, root.Version.Version,
			minimumIronic)
		result.Remedy = "install a newer Ironic (docs/metal3.md)"
		return []Result{result}
	}
	var drivers struct {
		Drivers []struct {
			Name string `json:"name"`
		} `json:"drivers"`
	}
	answers := fmt.Sprintf("%s answers, with API version %s", shown, root.Version.Version)
	status, err = getJSON(ctx, client, base+"/v1/drivers", root.Version.Version, &drivers)
	switch {
	case err != nil:
		result.Message = fmt.Sprintf("%s; but GET /v1/drivers: %s", answers, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		result.Level, result.Message, result.Remedy = OK, answers+", and asks for credentials, which are not sent", ""
	case status != http.StatusOK:
		result.Message = fmt.Sprintf("%s; but it answers GET /v1/drivers with status %d", answers, status)
	case len(drivers.Drivers) == 0:
		result.Message = answers + "; but it has no drivers, so that no conductor works"
	default:
		var names []string
		for _, driver := range drivers.Drivers {
			names = append(names, driver.Name)
		}
		result.Level, result.Message = OK, answers+" and drivers "+conditions.List(names, maxNamed)
		result.Remedy = ""
		return []Result{result, {Check: ironicCheck, Level: Warn,
			Message: shown + " asks for no credentials: all who reach it, servers of tenants perhaps among them, can erase servers",
			Remedy:  "install Ironic by ironic-standalone-operator, which makes credentials (docs/metal3.md)"}}
	}
	return []Result{result}
}

// NewIronicClient returns the client for Ironic. It trusts authorities in PEM, or the system's if empty.
func NewIronicClient(timeout time.Duration, authorities []byte) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if len(authorities) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, errors.New("it has no certificate in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Timeout: timeout, Transport: transport}, nil
}

// getJSON reads an answer. Its errors do not contain the URL.
func getJSON(ctx context.Context, client *http.Client, location, microversion string, target any) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return 0, errors.New("it is not a URL")
	}
	request.Header.Set("Accept", "application/json")
	if microversion != "" {
		request.Header.Set("X-OpenStack-Ironic-API-Version", microversion)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, errors.New(cause(err))
	}
	defer func() { _ = response.Body.Close() }() // nothing was written
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(target); err != nil {
		return response.StatusCode, errors.New("the answer is not JSON")
	}
	return response.StatusCode, nil
}
