// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"text/template"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// LinkUsage is the help text of the flag --link.
const LinkUsage = "Link out of the page, as NAME=URL: the pages of servers and the rows of tenants have it. In the URL, {{ .Host }} and " +
	"{{ .Namespace }} are those of the BareMetalHost, {{ .Machine }}, {{ .Node }}, {{ .Tenant }} and {{ .TenantNamespace }} the names of " +
	"what uses it, escaped. A link that needs a name which there is none of is left out. Can be repeated."

// Link is a link from a server or a tenant to a page elsewhere.
type Link struct {
	Name     string
	template *template.Template
}

// linked is the object that a link is for. Templates call its methods. A method fails if its name is empty, and the
// link is left out.
type linked struct{ host, namespace, machine, node, tenant, tenantNamespace string }

var errNoName = errors.New("there is no such name")

func escaped(name string) (string, error) {
	if name == "" {
		return "", errNoName
	}
	return url.QueryEscape(name), nil
}

// Host is the name of the BareMetalHost.
func (l linked) Host() (string, error) { return escaped(l.host) }

// Namespace is the namespace of the BareMetalHost.
func (l linked) Namespace() (string, error) { return escaped(l.namespace) }

// Machine is the name of the Machine, in the TenantNamespace.
func (l linked) Machine() (string, error) { return escaped(l.machine) }

// Node is the name of the node.
func (l linked) Node() (string, error) { return escaped(l.node) }

// Tenant is the name of the TenantCluster.
func (l linked) Tenant() (string, error) { return escaped(l.tenant) }

// TenantNamespace is the namespace of the Machine and the TenantCluster.
func (l linked) TenantNamespace() (string, error) { return escaped(l.tenantNamespace) }

// ParseLinks parses the entries of the flag --link. The error names the flag and every wrong entry.
func ParseLinks(entries []string) (links []Link, err error) {
	var errs []error
	all := linked{"host", "namespace", "machine", "node", "tenant", "tenant-namespace"}
	for _, entry := range entries {
		name, written, found := strings.Cut(entry, "=")
		if !found || strings.TrimSpace(name) == "" {
			errs = append(errs, fmt.Errorf("--link is %q: write NAME=URL, as in "+
				"Grafana=https://grafana.example.com/d/x?var-host={{ .Host }}", entry))
			continue
		}
		parsed, err := template.New(name).Parse(written)
		link := Link{name, parsed}
		if err == nil {
			_, err = link.lead(all)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--link is %q, %w", entry, err))
			continue
		}
		links = append(links, link)
	}
	return links, errors.Join(errs...)
}

func (l Link) lead(object linked) (string, error) {
	var written strings.Builder
	if err := l.template.Execute(&written, object); err != nil {
		return "", err
	}
	address, err := url.Parse(written.String())
	if err != nil {
		return "", err
	}
	if !isWeb(address) {
		return "", fmt.Errorf("the URL %q is none with https or http and a host", written.String())
	}
	return written.String(), nil
}

// isWeb reports whether a URL is an https or http URL with a host.
func isWeb(address *url.URL) bool {
	return (address.Scheme == "https" || address.Scheme == "http") && address.Host != ""
}

type leading struct{ Name, URL string }

// leadings returns the links for an object, without the links that need a name which the object lacks.
func (v *version) leadings(object linked) (all []leading) {
	for _, link := range v.links {
		if address, err := link.lead(object); err == nil {
			all = append(all, leading{link.Name, address})
		}
	}
	return all
}

// linkedOf returns the names of a server and of what uses it.
func linkedOf(server view.Server) linked {
	object := linked{host: server.Name, namespace: server.Namespace, node: server.Node}
	object.tenantNamespace, object.machine, _ = strings.Cut(server.Machine, "/")
	_, object.tenant, _ = strings.Cut(server.Tenant, "/")
	return object
}
