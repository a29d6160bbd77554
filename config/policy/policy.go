// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy has the ValidatingAdmissionPolicies of the management cluster and, in tenant/, of tenant clusters,
// and their bindings: what the rights in
// config/rbac let an account write, but must not with every content. The files are templates; Management and Tenant fill them in.
package policy

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Files are the files of this package, by name. The chart has copies, which Helm fills in.
//
//go:embed *.yaml tenant/*.yaml
var Files embed.FS

const (
	// ManagerUser is the default user name of the manager.
	ManagerUser = "karpenter-metal3-manager"
	// AdministratorsGroup is Kubernetes' own group of administrators.
	AdministratorsGroup = "system:masters"
	// KubeadmGroup is the group of the certificate in the admin.conf of kubeadm 1.29 and later, which binds it to cluster-admin.
	KubeadmGroup = "kubeadm:cluster-admins"
)

// Options of the policies.
type Options struct {
	// Managers are the user names of the manager. Unset means ManagerUser.
	Managers []string
	// Users and Groups are who else the policies do not hold for: controllers that own hooks, who restores backups. Groups unset
	// means AdministratorsGroup and KubeadmGroup.
	Users, Groups []string
	// Renamed are the user names of managers whose accounts are not called as the charts call them, each with the name that the policies
	// know it by: ManagerUser.
	Renamed map[string]string
}

// Management returns the policies of the management cluster and their bindings, each policy before its binding.
func Management(options Options) ([]client.Object, error) {
	if len(options.Managers) == 0 {
		options.Managers = []string{ManagerUser}
	}
	if len(options.Groups) == 0 {
		options.Groups = []string{AdministratorsGroup, KubeadmGroup}
	}
	return load("*.yaml", options.functions())
}

// functions are those of the templates.
func (options Options) functions() template.FuncMap {
	return template.FuncMap{
		"trustedUsers":  func() string { return list(slices.Concat(options.Managers, options.Users)) },
		"trustedGroups": func() string { return list(options.Groups) },
		"renamedAccounts": func() string {
			var pairs []string
			for _, user := range slices.Sorted(maps.Keys(options.Renamed)) {
				pairs = append(pairs, fmt.Sprintf("'%s': '%s'", quote(user), quote(options.Renamed[user])))
			}
			return "{" + strings.Join(pairs, ", ") + "}"
		},
	}
}

// ProviderUser is the default user name of the provider in the tenant cluster.
const ProviderUser = "karpenter-metal3-provider"

// Tenant returns the policies of a tenant cluster and their bindings, each policy before its binding. provider is the user name of the
// provider there, and namespace that of the TenantCluster in the management cluster, "" if it is not known.
func Tenant(provider, namespace string) ([]client.Object, error) {
	return load("tenant/*.yaml", template.FuncMap{
		"provider":         func() string { return quote(provider) },
		"machineNamespace": func() string { return cmp.Or(namespace, "[^/]+") },
	})
}

// load fills in the files that match a pattern.
func load(pattern string, functions template.FuncMap) ([]client.Object, error) {
	parsed, err := template.New("").Option("missingkey=error").Funcs(functions).ParseFS(Files, pattern)
	if err != nil {
		return nil, fmt.Errorf("parsing the templates of the admission policies, %w", err)
	}
	names, err := fs.Glob(Files, pattern)
	if err != nil {
		return nil, fmt.Errorf("listing the admission policies, %w", err)
	}
	var objects []client.Object
	for _, name := range names {
		var filled bytes.Buffer
		if err := parsed.ExecuteTemplate(&filled, path.Base(name), nil); err != nil {
			return nil, fmt.Errorf("filling in the admission policies of %s, %w", name, err)
		}
		for document := range strings.SplitSeq(filled.String(), "\n---\n") {
			object, err := read(document)
			if err != nil {
				return nil, fmt.Errorf("reading the admission policies of %s, %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// Names are those of the policies, and of their bindings.
func Names() ([]string, error) {
	objects, err := Management(Options{})
	var names []string
	for _, object := range objects {
		if _, binding := object.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); binding {
			names = append(names, object.GetName())
		}
	}
	return names, err
}

// Gap is a policy or a binding that a cluster does not have, or that could not be read.
type Gap struct {
	Kind, Name string
	// Err is why it could not be read; nil if it does not exist.
	Err error
}

// Gaps returns which of the policies with these names, and of their bindings, cannot be found.
func Gaps(ctx context.Context, reader client.Reader, names []string) []Gap {
	var gaps []Gap
	for _, name := range names {
		for _, expected := range []struct {
			kind   string
			object client.Object
		}{
			{"ValidatingAdmissionPolicy", &admissionregistrationv1.ValidatingAdmissionPolicy{}},
			{"ValidatingAdmissionPolicyBinding", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}},
		} {
			err := reader.Get(ctx, client.ObjectKey{Name: name}, expected.object)
			if err == nil {
				continue
			}
			if apierrors.IsNotFound(err) {
				err = nil
			}
			gaps = append(gaps, Gap{expected.kind, name, err})
		}
	}
	return gaps
}

// read returns the policy or binding of a document.
func read(document string) (client.Object, error) {
	var object client.Object = &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if strings.Contains(document, "\nkind: ValidatingAdmissionPolicyBinding\n") {
		object = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	}
	return object, yaml.UnmarshalStrict([]byte(document), object)
}

// list writes a list in CEL.
func list(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + quote(word) + "'"
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// quote writes the inside of a string in CEL.
func quote(word string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(word) }
