// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube has helpers for clients of an API server: reads, patches, handlers and watches.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// ConflictRetry is the delay before the next look at an object that has changed since the cache saw it.
	ConflictRetry = time.Second
	// Concurrency is how many objects a controller reconciles at a time.
	Concurrency = 10
	// CacheSyncTimeout is for controllers of kinds that an API server need not serve from the start. The default of two
	// minutes would end the whole process, and all other controllers with it.
	CacheSyncTimeout = 24 * time.Hour
)

// NamespaceMetadata returns an object for reading or watching metadata of Namespaces, also from a cache.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	return MetadataOf(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

// MetadataOf returns an object of a kind for a cache of metadata.
func MetadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// RetryConflict turns the error of a write into the result of a Reconcile. A conflict, or an object that already
// exists, is another client's write that the cache does not show yet. It is retried and not logged as an error.
func RetryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// IsGone reports whether an error means that the object does not exist. A server that does not serve the kind, or not
// in this version, also returns 404; IsGone is false for it.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// Requests returns a request for each object that a cache lists. It logs errors: a handler of watches cannot return
// them.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) []reconcile.Request {
	return RequestsWhere(ctx, reader, list, func(client.Object) bool { return true }, opts...)
}

// RequestsWhere returns requests for the objects for which holds returns true. holds must not modify them.
func RequestsWhere(ctx context.Context, reader client.Reader, list client.ObjectList, holds func(client.Object) bool,
	opts ...client.ListOption) []reconcile.Request {
	var requests []reconcile.Request
	err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && holds(object) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
			return nil
		})
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the objects to reconcile", "list", fmt.Sprintf("%T", list))
	}
	return requests
}

// Events is a set of event kinds of a watch.
type Events uint8

// Kinds of events. When a watch begins, each existing object counts as a creation.
const (
	Creations Events = 1 << iota
	Updates
	Deletions
)

// Only passes events of the given kinds: Only(Creations|Deletions).
func Only(events Events) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return events&Creations != 0 },
		UpdateFunc:  func(event.UpdateEvent) bool { return events&Updates != 0 },
		DeleteFunc:  func(event.DeleteEvent) bool { return events&Deletions != 0 },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Changed passes an update of an object of type T only if it changes a part of the object, and passes all other events.
func Changed[T client.Object, R any](part func(T) R) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(Of(part)(e.ObjectOld), Of(part)(e.ObjectNew))
	}}
}

// Of adapts a function of one kind to objects, for handlers, predicates and indexes. Other kinds get the zero value.
func Of[T client.Object, R any](f func(T) R) func(client.Object) R {
	return func(object client.Object) (result R) {
		if typed, ok := object.(T); ok {
			result = f(typed)
		}
		return result
	}
}

// Enqueue is a handler that enqueues the requests for an object of one kind. For an update it also enqueues the
// requests for the old object.
func Enqueue[T client.Object](requests func(context.Context, T) []reconcile.Request) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return Of(func(typed T) []reconcile.Request { return requests(ctx, typed) })(object)
	})
}

// Find reads an object, and reports whether it exists.
func Find(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object,
	options ...client.GetOption) (bool, error) {
	err := reader.Get(ctx, key, object, options...)
	if IsGone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s, %w", describe(object, key), err)
	}
	return true, nil
}

// FindMachine returns the Machine that claims under the UID of a reference. It returns nil if that Machine is gone, also
// if there is another one of its name: what the reference is on belongs to nobody.
func FindMachine(ctx context.Context, reader client.Reader, reference v1alpha1.MachineReference) (*v1alpha1.Machine, error) {
	machine := &v1alpha1.Machine{}
	found, err := Find(ctx, reader, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, machine)
	if err != nil || !found || machine.ClaimUID() != reference.UID {
		return nil, err
	}
	return machine, nil
}

// Patch writes only the changes that change makes to an object, so fields of a newer API version survive. It is a
// compare-and-swap on the version that was read. Otherwise it could remove what another client has added meanwhile: a
// merge patch replaces whole lists, such as the finalizers.
func Patch(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	change()
	return wrap(c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})), doing, before)
}

// PatchOwn is Patch for fields that no other client writes and that are not lists. It compares only the UID, so it
// succeeds even if another client has written since the object was read. A later object with the same name is a
// conflict.
func PatchOwn(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	before.SetUID("") // so that the patch includes it
	change()
	err := c.Patch(ctx, object, client.MergeFrom(before))
	if status := apierrors.APIStatus(nil); apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Field == "metadata.uid" {
				err = apierrors.NewConflict(schema.GroupResource{}, object.GetName(), err)
			}
		}
	}
	return wrap(err, doing, before)
}

// PatchStatus patches the status of an object like Patch; before is the object before the change.
func PatchStatus(ctx context.Context, c client.Client, before, object client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return wrap(c.Status().Patch(ctx, object, patch), "writing the status of", before)
}

// Delete deletes the object with this UID. It returns no error if the object is gone, and leaves a later object with
// the same name alone.
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

// SetLabel sets a label of an object, and reports whether the object already had it.
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

// Handler calls set for each object that an informer sees, and remove for each object that is gone. If the watch missed
// the deletion, remove gets the last state that was seen, or only the name if no state is known.
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

// OnUpdate is an informer handler for changes of an object. Another object of the same name is no change.
func OnUpdate[T client.Object](changed func(before, after T)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(from, to any) {
		before, ok := from.(T)
		if after, also := to.(T); ok && also && before.GetUID() == after.GetUID() {
			changed(before, after)
		}
	}}
}

// Watch adds a handler to the informer of a kind. It returns the registration, and a function that removes the handler.
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
