// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether a management cluster has what this project needs: its version, the definitions of Metal3's kinds and
// of ours, hosts that Metal3 works on, and, for a caller that wants it, whether the providers of tenants work, what is in front of the API
// server, Ironic, and the images. It only reads. What its caller has no right to read is said, and is no failure.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Level is what a check has found.
type Level string

// What checks find.
const (
	OK Level = "OK"
	// Skip: it cannot be checked, for example because the caller may not read it.
	Skip Level = "SKIP"
	// Warn: it works, but perhaps not as expected.
	Warn Level = "WARN"
	// Fail: servers are not provisioned as long as it is so.
	Fail Level = "FAIL"
)

// Result is what one check has found.
type Result struct {
	// Check is the name of what was checked.
	Check string
	Level Level
	// Message is what was found.
	Message string
	// Remedy is the command that mends it, or shows why; empty if nothing has to be done.
	Remedy string
}

// Cluster is a management cluster that is checked.
type Cluster struct {
	// Reader reads its objects.
	Reader client.Reader
	// Discovery reads its version and its definitions. All users may.
	Discovery discovery.DiscoveryInterface
	Clock     clock.PassiveClock
}

// Essentials are the checks that the manager does at its start: with no other rights than it has, without a request to anything but the
// API server, and without a list that a cached Reader does not have in memory.
func (c *Cluster) Essentials(ctx context.Context) []Result {
	return slices.Concat(c.kubernetes(), c.definitions(), c.hosts(ctx))
}

// Outside is what Everything asks beside the API server.
type Outside struct {
	// Ironic is the URL of Ironic's API, "" if it is not to be asked, and IronicClient what asks.
	Ironic       string
	IronicClient *http.Client
	// Images asks for images and checksums, nil if nothing is to be asked.
	Images *http.Client
}

// Everything are the essentials, and all other checks.
func (c *Cluster) Everything(ctx context.Context, outside Outside) []Result {
	results := slices.Concat(c.Essentials(ctx), c.OSImages(ctx), c.providers(ctx), c.admission(ctx), c.ironics(ctx))
	if outside.Ironic != "" {
		results = append(results, askIronic(ctx, outside.IronicClient, outside.Ironic)...)
	}
	if outside.Images != nil {
		results = append(results, c.images(ctx, outside.Images)...)
	}
	return results
}

// Failures are how many checks have failed.
func Failures(results []Result) int {
	return lo.CountBy(results, func(result Result) bool { return result.Level == Fail })
}

// Print writes the results as a table. What mends a result stands below it.
func Print(w io.Writer, results []Result) error {
	width := len("CHECK")
	for _, result := range results {
		width = max(width, len(result.Check))
	}
	var text strings.Builder
	row := func(check, level, message string) {
		fmt.Fprintln(&text, strings.TrimRight(fmt.Sprintf("%-*s   %-6s   %s", width, check, level, message), " "))
	}
	row("CHECK", "RESULT", "FOUND")
	for _, result := range results {
		row(result.Check, string(result.Level), result.Message)
		if result.Remedy != "" {
			row("", "", "-> "+result.Remedy)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// Log writes what is not in order, and in one line what is.
func Log(log logr.Logger, results []Result) {
	var fine []string
	for _, result := range results {
		if result.Level == OK {
			fine = append(fine, result.Check+": "+result.Message)
			continue
		}
		log.Info("Preflight: "+result.Message, "check", result.Check, "result", result.Level, "remedy", result.Remedy)
	}
	log.Info("Preflight", "failed", Failures(results), "inOrder", fine)
}

// unreadable is the result of a check whose objects could not be read.
func unreadable(check string, err error) Result {
	result := Result{Check: check, Level: Fail, Message: cause(err)}
	switch {
	case apierrors.IsForbidden(err):
		_, denied, found := strings.Cut(err.Error(), "is forbidden: ")
		if !found {
			denied = err.Error()
		}
		result.Level, result.Message = Skip, "cannot check, a right is missing: "+denied
	case isMissingKind(err):
		result.Level, result.Message = Skip, "cannot check: the cluster does not have the kind"
	case apierrors.IsUnauthorized(err):
		result.Remedy = "kubectl auth whoami"
	}
	return result
}

// isMissingKind returns whether a cluster does not have the kind that was to be read.
func isMissingKind(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && strings.Contains(err.Error(), "could not find the requested resource")
}

// cause is an error of an HTTP client without the URL, which may hold a password or be signed.
func cause(err error) string {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if timeout := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer in time"
	}
	return err.Error()
}

// worst first, then by name.
func bySeverity(a, b Result) int {
	order := []Level{Fail, Warn, Skip, OK}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)), cmp.Compare(a.Check, b.Check),
		cmp.Compare(a.Message, b.Message))
}
