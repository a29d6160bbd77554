// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// Hosts makes a cache hold BareMetalHosts as inventory.TrimHost leaves them. From then on, watches of clients with this
// configuration skip the dropped fields: client-go reads an event seven times, most of it is inspection data, and
// Metal3 writes the status of every host again and again. Lists and single reads have everything.
func Hosts(config *rest.Config) cache.ByObject {
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &transport{base} })
	return cache.ByObject{Transform: operator.TrimAlso(inventory.TrimHost)}
}

// dropped are the fields that TrimHost drops, as paths of gjson. keptHardware is what it keeps of the hardware.
var dropped = []string{
	"object.metadata.managedFields", "object.status.operationHistory", "object.status.goodCredentials",
	"object.status.triedCredentials", "object.status.provisioning.firmware",
}

const (
	hardware     = "object.status.hardware"
	keptHardware = `{ramMebibytes,"cpu":cpu.{arch,count},"nics":nics.#.{name,mac},"storage":storage.#.{sizeBytes}}`
)

// trim returns an event without the fields that TrimHost drops. It writes to the event.
func trim(event []byte) []byte {
	replace := func(path string, change func(gjson.Result) string) {
		if value := gjson.GetBytes(event, path); value.Index > 0 {
			event = slices.Replace(event, value.Index, value.Index+len(value.Raw), []byte(change(value))...)
		}
	}
	for _, path := range dropped {
		replace(path, func(gjson.Result) string { return "null" })
	}
	replace(hardware, func(value gjson.Result) string {
		if !value.IsObject() {
			return value.Raw
		}
		return value.Get(keptHardware).Raw
	})
	return event
}

type transport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil && watchesHosts(request) && response.StatusCode == http.StatusOK &&
		strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		response.Body = &body{ReadCloser: response.Body, lines: bufio.NewReader(response.Body)}
	}
	return response, err
}

// WrappedRoundTripper implements net.RoundTripperWrapper: without it, client-go finds no connections to close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

func watchesHosts(request *http.Request) bool {
	path := request.URL.Path
	return strings.Contains(path, "/apis/metal3.io/") && strings.HasSuffix(path, "/baremetalhosts") && request.URL.Query().Has("watch")
}

// body is the body of a watch with its events trimmed. An event is a line.
type body struct {
	io.ReadCloser
	lines  *bufio.Reader
	unread []byte
	err    error
}

// Read implements io.Reader.
func (b *body) Read(buffer []byte) (int, error) {
	for len(b.unread) == 0 && b.err == nil {
		if b.unread, b.err = b.lines.ReadBytes('\n'); b.err == nil {
			b.unread = trim(b.unread)
		}
	}
	count := copy(buffer, b.unread)
	if b.unread = b.unread[count:]; count > 0 {
		return count, nil
	}
	return 0, b.err
}
