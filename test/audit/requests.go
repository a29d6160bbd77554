// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Request is a request to an API server.
type Request struct {
	// Cluster is the name that Flags was called with.
	Cluster string
	// User is the user, or the impersonated one. Service accounts have only their name here.
	User string
	// Verb as in RBAC.
	Verb string
	// Group of the API; empty for the core.
	Group string
	// Resource, with its subresource: "machines/status".
	Resource string
	// Namespace; empty for a request about the whole cluster.
	Namespace string
	// Name of the object; empty for a request about several, or about one that has no name yet.
	Name string
	// Forbidden is true if the request was denied by RBAC.
	Forbidden bool
}

// serviceAccountPrefix begins the names of users that are service accounts.
const serviceAccountPrefix = "system:serviceaccount:"

// administrators is the group with all rights.
const administrators = "system:masters"

// line has the fields of an audit log line that are used.
type line struct {
	Verb             string
	User             user
	ImpersonatedUser *user
	ObjectRef        *struct{ Resource, Subresource, Namespace, Name, APIGroup string }
	Annotations      map[string]string
}

type user struct {
	Username string
	Groups   []string
}

// request is the request of a line. Its user is empty for an administrator, because RBAC rules are not used then.
func (l line) request(cluster string) Request {
	user := l.User
	if l.ImpersonatedUser != nil {
		user = *l.ImpersonatedUser
	}
	name := user.Username
	if account, found := strings.CutPrefix(name, serviceAccountPrefix); found {
		_, name, _ = strings.Cut(account, ":")
	}
	if slices.Contains(user.Groups, administrators) {
		name = ""
	}
	resource := l.ObjectRef.Resource
	if l.ObjectRef.Subresource != "" {
		resource += "/" + l.ObjectRef.Subresource
	}
	return Request{
		Cluster: cluster, User: name, Verb: l.Verb, Group: l.ObjectRef.APIGroup, Resource: resource,
		Namespace: l.ObjectRef.Namespace, Name: l.ObjectRef.Name, Forbidden: l.Annotations["authorization.k8s.io/decision"] == "forbid",
	}
}

// Requests are those in the logs of a directory, each once. Users whose names begin with none of the prefixes are left out.
func Requests(directory string, users ...string) (map[Request]bool, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.log"))
	if err != nil {
		return nil, fmt.Errorf("looking for audit logs, %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no audit logs in %s: run tests with %s=%s first", directory, DirectoryVariable, directory)
	}
	all := map[Request]bool{}
	for _, file := range files {
		cluster, _, _ := strings.Cut(filepath.Base(file), "-")
		if err := read(file, func(line line) {
			request := line.request(cluster)
			for _, prefix := range users {
				if strings.HasPrefix(request.User, prefix) {
					all[request] = true
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func read(file string, take func(line)) error {
	log, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening an audit log, %w", err)
	}
	defer func() { _ = log.Close() }()
	reader := bufio.NewReader(log)
	for {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete last line: the API server was killed while writing it
		}
		if err != nil {
			return fmt.Errorf("reading %s, %w", file, err)
		}
		parsed := line{}
		if err := json.Unmarshal(text, &parsed); err != nil {
			return fmt.Errorf("reading %s, %w", file, err)
		}
		if parsed.ObjectRef != nil {
			take(parsed)
		}
	}
}

// Right is one verb of a rule.
type Right struct {
	// Role is the kind and the name of the role that has it.
	Role string
	// Namespace in which it holds; empty for a right in the whole cluster.
	Namespace string
	// Verb, Group and Resource (with its subresource) are the rule's.
	Verb, Group, Resource string
	// Name is that of the only object that it is for; empty for all.
	Name string
}

// String describes the right: "ClusterRole karpenter-metal3-manager: patch baremetalhosts.metal3.io".
func (r Right) String() string {
	text := fmt.Sprintf("%s: %s %s", r.Role, r.Verb, r.Resource)
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	return text
}

// Rights of a role, one by one.
func Rights(role, namespace string, rules []rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						all = append(all, Right{Role: role, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Name: name})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// Gives returns whether the right allows the request. The namespace * stands for any.
func (r Right) Gives(request Request) bool {
	return !request.Forbidden && r.Verb == request.Verb && r.Group == request.Group && r.Resource == request.Resource &&
		(r.Name == "" || r.Name == request.Name) &&
		(r.Namespace == "" || r.Namespace == request.Namespace || r.Namespace == "*" && request.Namespace != "")
}
