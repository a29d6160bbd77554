// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package interceptor makes clients that change objects on the way to Karpenter's core, in memory only.
//
// Core has few extension points, but it takes its client as a parameter. An interceptor changes what core reads, and
// removes what core should not write from the objects that core creates. Do not give a client of this package to code
// that writes back the objects that it has read: the changes would be stored.
package interceptor

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Interceptor changes objects of one type. The zero value changes nothing.
type Interceptor struct {
	list func(ctx context.Context, list client.ObjectList, opts []client.ListOption) error
	get  func(ctx context.Context, object client.Object, opts []client.GetOption) error
	// supply fills in an object that the API server cannot have, and reports whether it exists.
	supply func(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error)
	create func(object client.Object)
	// skipPatch and skipStatusPatch report whether a patch of an object, or of its status, is dropped.
	skipPatch, skipStatusPatch func(object client.Object, patch []byte) bool
}

// OnList changes lists after they have been read. The items belong to the list, but the objects that they point to may
// belong to the cache: change must replace them, not modify them in place.
func OnList[L client.ObjectList](change func(ctx context.Context, list L, opts []client.ListOption) error) Interceptor {
	return Interceptor{list: func(ctx context.Context, list client.ObjectList, opts []client.ListOption) error {
		if typed, ok := list.(L); ok {
			return change(ctx, typed, opts)
		}
		return nil
	}}
}

// OnGet changes objects after they have been read. The rule of OnList applies. O may be client.Object, for all types.
func OnGet[O client.Object](change func(ctx context.Context, object O, opts []client.GetOption) error) Interceptor {
	return Interceptor{get: func(ctx context.Context, object client.Object, opts []client.GetOption) error {
		if typed, ok := object.(O); ok {
			return change(ctx, typed, opts)
		}
		return nil
	}}
}

// Supply provides objects that exist only for core. supply reports false for the name of any other object.
func Supply[O client.Object](supply func(ctx context.Context, key client.ObjectKey, object O) (bool, error)) Interceptor {
	return Interceptor{supply: func(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
		if typed, ok := object.(O); ok {
			return supply(ctx, key, typed)
		}
		return false, nil
	}}
}

// OnCreate changes objects before they are created.
func OnCreate[O client.Object](change func(object O)) Interceptor {
	return Interceptor{create: func(object client.Object) {
		if typed, ok := object.(O); ok {
			change(typed)
		}
	}}
}

// SkipPatch drops patches of objects for which skip returns true. The patch succeeds, and the object stays as it is.
func SkipPatch[O client.Object](skip func(object O, patch []byte) bool) Interceptor {
	return Interceptor{skipPatch: skipper(skip)}
}

// SkipStatusPatch is SkipPatch for patches of the status.
func SkipStatusPatch[O client.Object](skip func(object O, patch []byte) bool) Interceptor {
	return Interceptor{skipStatusPatch: skipper(skip)}
}

func skipper[O client.Object](skip func(object O, patch []byte) bool) func(client.Object, []byte) bool {
	return func(object client.Object, patch []byte) bool {
		typed, ok := object.(O)
		return ok && skip(typed, patch)
	}
}

// NewClient wraps a client and applies the interceptors in their order.
func NewClient(c client.Client, interceptors ...Interceptor) client.Client {
	return &interceptedClient{Client: c, interceptors: interceptors}
}

type interceptedClient struct {
	client.Client
	interceptors []Interceptor
}

// Get implements client.Client.
func (c *interceptedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	for _, interceptor := range c.interceptors {
		if interceptor.supply == nil {
			continue
		}
		if supplied, err := interceptor.supply(ctx, key, object); err != nil || supplied {
			return err
		}
	}
	if err := c.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	for _, interceptor := range c.interceptors {
		if interceptor.get == nil {
			continue
		}
		if err := interceptor.get(ctx, object, opts); err != nil {
			return err
		}
	}
	return nil
}

// List implements client.Client.
func (c *interceptedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	for _, interceptor := range c.interceptors {
		if interceptor.list == nil {
			continue
		}
		if err := interceptor.list(ctx, list, opts); err != nil {
			return err
		}
	}
	return nil
}

// Create implements client.Client. It copies the metadata first: core makes several objects from one template at a
// time, and they share it.
func (c *interceptedClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	object.SetLabels(maps.Clone(object.GetLabels()))
	object.SetAnnotations(maps.Clone(object.GetAnnotations()))
	object.SetFinalizers(slices.Clone(object.GetFinalizers()))
	for _, interceptor := range c.interceptors {
		if interceptor.create != nil {
			interceptor.create(object)
		}
	}
	return c.Client.Create(ctx, object, opts...)
}

// Patch implements client.Client.
func (c *interceptedClient) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if c.skips(object, patch, func(i Interceptor) func(client.Object, []byte) bool { return i.skipPatch }) {
		return nil
	}
	return c.Client.Patch(ctx, object, patch, opts...)
}

// Status implements client.Client.
func (c *interceptedClient) Status() client.SubResourceWriter {
	return statusWriter{c.Client.Status(), c}
}

type statusWriter struct {
	client.SubResourceWriter
	client *interceptedClient
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if w.client.skips(object, patch, func(i Interceptor) func(client.Object, []byte) bool { return i.skipStatusPatch }) {
		return nil
	}
	return w.SubResourceWriter.Patch(ctx, object, patch, opts...)
}

// skips reports whether one of the interceptors drops a patch. A patch that cannot be read is sent.
func (c *interceptedClient) skips(object client.Object, patch client.Patch,
	hook func(Interceptor) func(client.Object, []byte) bool) bool {
	data, err := patch.Data(object)
	return err == nil && slices.ContainsFunc(c.interceptors, func(i Interceptor) bool {
		skip := hook(i)
		return skip != nil && skip(object, data)
	})
}

// SelectsPending reports whether the options list all pods without a node, as core does to schedule them.
func SelectsPending(opts []client.ListOption) bool {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if options.FieldSelector == nil || options.Namespace != "" || options.LabelSelector != nil {
		return false
	}
	node, exact := options.FieldSelector.RequiresExactMatch("spec.nodeName")
	return exact && node == ""
}

// WithNodeRequirements returns a copy of the affinity that requires the given node labels in addition. The argument may
// be nil. It is not modified, because it may belong to the cache.
func WithNodeRequirements(affinity *corev1.Affinity, requirements ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	result := &corev1.Affinity{}
	if affinity != nil {
		*result = *affinity
	}
	node := &corev1.NodeAffinity{}
	if result.NodeAffinity != nil {
		*node = *result.NodeAffinity
	}
	result.NodeAffinity = node

	// The terms are alternatives, so each of them gets the requirements.
	var terms []corev1.NodeSelectorTerm
	if node.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = slices.Clone(node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clone(terms[i].MatchExpressions), requirements...)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return result
}
