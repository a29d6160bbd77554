// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads an object, and returns whether it exists.
func Find(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object) (bool, error) {
	err := reader.Get(ctx, key, object)
	if IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s, %w", describe(object, key), err)
	}
	return true, nil
}

// Patch writes what change does to an object, and nothing else, so that fields of a newer version than this one knows survive.
// It is a compare-and-swap on the version that was read: a merge patch replaces whole lists, such as the finalizers, and would
// remove what another client has added meanwhile.
func Patch(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	change()
	return wrap(c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})), doing, before)
}

// PatchStatus is Patch for the status of an object. It takes the object as it was before the change.
func PatchStatus(ctx context.Context, c client.Client, before, object client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return wrap(c.Status().Patch(ctx, object, patch), "writing the status of", before)
}

// Delete deletes the object with this UID. It is no error if that is gone, and a later one of its name is left alone.
func Delete(ctx context.Context, c client.Writer, object client.Object, doing string) error {
	err := c.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the conflict is another UID
		return nil
	}
	return wrap(err, doing, object)
}

func wrap(err error, doing string, object client.Object) error {
	if err != nil {
		return fmt.Errorf("%s %s, %w", doing, describe(object, client.ObjectKeyFromObject(object)), err)
	}
	return nil
}

// describe names an object in errors: "Machine tenant-a/gpu-x7f2k".
func describe(object client.Object, key client.ObjectKey) string {
	kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(object).Elem().Name())
	return kind + " " + strings.TrimPrefix(key.String(), "/")
}

// SetLabel sets a label of an object, and returns whether that had it already.
func SetLabel(object client.Object, key, value string) (had bool) {
	labels := object.GetLabels()
	if labels[key] == value {
		return true
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
	return false
}

// Handler calls set with each object that an informer sees, and remove with those that are gone. A deletion that the watch has
// missed comes with the last state that was seen, or with nothing but the name if not even that is known.
func Handler[T client.Object](set, remove func(T)) toolscache.ResourceEventHandler {
	call := func(f func(T), object any) {
		if typed, ok := object.(T); ok && f != nil {
			f(typed)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { call(set, object) },
		UpdateFunc: func(_, object any) { call(set, object) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				if object = tombstone.Obj; object == nil {
					gone := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
					namespace, name, _ := toolscache.SplitMetaNamespaceKey(tombstone.Key)
					gone.SetNamespace(namespace)
					gone.SetName(name)
					object = gone
				}
			}
			call(remove, object)
		},
	}
}

// Watch adds a handler to the informer of a kind. It returns the registration, and what to call when done.
func Watch(ctx context.Context, informers cache.Informers, kind client.Object, handler toolscache.ResourceEventHandler) (
	toolscache.ResourceEventHandlerRegistration, func(), error) {
	informer, err := informers.GetInformer(ctx, kind)
	if err != nil {
		return nil, nil, fmt.Errorf("watching %T, %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, nil, fmt.Errorf("watching %T, %w", kind, err)
	}
	return registration, func() { _ = informer.RemoveEventHandler(registration) }, nil // fails only if the informer has stopped
}
