// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether a management cluster has what this project needs: its version, the definitions of
// Metal3's kinds and ours, and hosts that Metal3 works on. On request, it also checks the providers of tenants, the
// admission in front of the API server, Ironic, and the images. It only reads. It reports objects that its caller may
// not read, without a failure.
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

// Level is the outcome of a check.
type Level string

// Outcomes of checks.
const (
	OK Level = "OK"
	// Skip: the check is not possible, for example because the caller has no right to read.
	Skip Level = "SKIP"
	// Warn: it works, but perhaps not as expected.
	Warn Level = "WARN"
	// Fail: no servers are provisioned until it is corrected.
	Fail Level = "FAIL"
)

// Result is the result of one check.
type Result struct {
	// Check is the name of the checked thing.
	Check string
	Level Level
	// Message says what the check found.
	Message string
	// Remedy is a command that solves the problem or shows its cause; empty if nothing has to be done.
	Remedy string
}

// Cluster is the management cluster to check.
type Cluster struct {
	// Reader reads its objects.
	Reader client.Reader
	// Discovery reads its version and its definitions. All users may do that.
	Discovery discovery.DiscoveryInterface
	Clock     clock.PassiveClock
}

// Essentials returns the checks that the manager does at its start. They need no other rights than the manager's, no
// request to anything but the API server, and no list that a cached Reader does not have in memory.
func (c *Cluster) Essentials(ctx context.Context) []Result {
	return slices.Concat(c.kubernetes(), c.definitions(), c.hosts(ctx))
}

// Outside is what Everything asks in addition to the API server.
type Outside struct {
	// Ironic is the URL of Ironic's API, "" to skip it. IronicClient is the client for it.
	Ironic       string
	IronicClient *http.Client
	// Images is the client for images and checksums, nil to skip them.
	Images *http.Client
}

// Everything returns the essentials, and all other checks.
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

// Failures returns how many checks have failed.
func Failures(results []Result) int {
	return lo.CountBy(results, func(result Result) bool { return result.Level == Fail })
}

// Print writes the results as a table, each with its remedy below it.
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

// Log writes each result that is not OK, and all others in one line.
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

// unreadable returns the result of a check whose objects could not be read.
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

// isMissingKind reports whether the error means that the cluster does not have the kind.
func isMissingKind(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && strings.Contains(err.Error(), "could not find the requested resource")
}

// cause returns the error of an HTTP client without the URL, which may hold a password or a signature.
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

// bySeverity sorts the worst results first.
func bySeverity(a, b Result) int {
	order := []Level{Fail, Warn, Skip, OK}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)), cmp.Compare(a.Check, b.Check),
		cmp.Compare(a.Message, b.Message))
}
