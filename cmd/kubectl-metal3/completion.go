// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// completionTimeout is how long a shell waits for names.
const completionTimeout = 5 * time.Second

// completeKind completes a kind, and then the name of an object of this kind.
func (o *options) completeKind(kinds ...string) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(arguments) {
		case 0:
			return kinds, cobra.ShellCompDirectiveNoFileComp
		case 1:
			return o.names(command.Context(), singular(arguments[0]), typed), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeName completes the name of an object of a kind, and then the given words.
func (o *options) completeName(kind string, then ...string) cobra.CompletionFunc {
	return func(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(arguments) {
		case 0:
			return o.names(command.Context(), kind, typed), cobra.ShellCompDirectiveNoFileComp
		case 1:
			return then, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// names returns the names of the objects of a kind, with their namespace once the typed text has a slash. It returns
// nil if the clusters cannot be read: the command itself reports the error.
func (o *options) names(ctx context.Context, kind, typed string) []string {
	ctx, stop := context.WithTimeout(ctx, completionTimeout)
	defer stop()
	snapshot, err := o.read(ctx)
	if err != nil {
		return nil
	}
	var names []string
	add := func(object client.Object) {
		name := object.GetName()
		if strings.Contains(typed, "/") && object.GetNamespace() != "" {
			name = object.GetNamespace() + "/" + name
		}
		if strings.HasPrefix(name, typed) {
			names = append(names, name)
		}
	}
	switch kind {
	case "host":
		each(snapshot.Management.Hosts, add)
	case "machine":
		each(snapshot.Management.Machines, add)
	case "nodetype":
		each(snapshot.Management.NodeTypes, add)
	}
	for _, part := range snapshot.PerTenant() {
		switch kind {
		case "nodeclaim":
			each(part.Tenant.NodeClaims, add)
		case "pod":
			each(part.Tenant.Pods, add)
		default:
			each(part.Tenant.Pods, func(pod client.Object) {
				if group := view.GroupOf(kind, pod.(*corev1.Pod)); group != "" {
					add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: group}})
				}
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // the pods of a group give the same name
}

func each[T any, P interface {
	*T
	client.Object
}](objects []T, do func(client.Object)) {
	for i := range objects {
		do(P(&objects[i]))
	}
}
