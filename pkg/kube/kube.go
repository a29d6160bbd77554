// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube has what clients of an API server share: reads, patches, handlers and watches.
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
)

const (
	// ConflictRetry is the delay before the next look at an object that has changed since the cache saw it.
	ConflictRetry = time.Second
	// Concurrency is how many objects a controller reconciles at a time.
	Concurrency = 10
	// CacheSyncTimeout is for controllers of kinds that an API server need not serve from the start. With the default of
	// two minutes the whole process would end, and all other controllers with it.
	CacheSyncTimeout = 24 * time.Hour
)

// NamespaceMetadata returns an object to read or watch a Namespace with, or what a client finds in a cache of that. Only the metadata
// is fetched.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	return MetadataOf(corev1.SchemeGroupVersion.WithKind("Namespace"))
}

// MetadataOf is an object of a kind, for a cache of metadata.
func MetadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

// RetryConflict turns the error of a write into the result of a Reconcile. A conflict, or an object that exists already,
// is another client's write that the cache does not show yet: it is retried and not logged as an error.
func RetryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// IsGone returns whether an error means that the object does not exist. A server that does not serve the kind, or not
// in this version, also returns 404, which does not mean that.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// Requests returns a request for each object that a cache lists. An error is logged: a handler of watches cannot return
// it.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) []reconcile.Request {
	return RequestsWhere(ctx, reader, list, func(client.Object) bool { return true }, opts...)
}

// RequestsWhere returns the requests for those objects for which holds is true. It must not change them.
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

// Events are kinds of events of a watch.
type Events uint8

// The kinds of events. Creations are also those of all objects that there are when a watch begins.
const (
	Creations Events = 1 << iota
	Updates
	Deletions
)

// Only lets events of some kinds through: Only(Creations|Deletions).
func Only(events Events) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return events&Creations != 0 },
		UpdateFunc:  func(event.UpdateEvent) bool { return events&Updates != 0 },
		DeleteFunc:  func(event.DeleteEvent) bool { return events&Deletions != 0 },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// Changed lets those updates of objects of one kind through that change a part of them, and all other events.
func Changed[T client.Object, R any](part func(T) R) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(Of(part)(e.ObjectOld), Of(part)(e.ObjectNew))
	}}
}

// Of makes a function of one kind a function of objects, as handlers, predicates and indexes take it. It returns the zero value
// for other kinds.
func Of[T client.Object, R any](f func(T) R) func(client.Object) R {
	return func(object client.Object) (result R) {
		if typed, ok := object.(T); ok {
			result = f(typed)
		}
		return result
	}
}

// Enqueue is a handler that enqueues the requests for an object of one kind; after an update those for the object before, too.
func Enqueue[T client.Object](requests func(context.Context, T) []reconcile.Request) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return Of(func(typed T) []reconcile.Request { return requests(ctx, typed) })(object)
	})
}

// Find reads an object, and returns whether it exists.
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

// Patch writes what change does to an object, and nothing else, so that fields of a newer version than this one knows survive.
// It is a compare-and-swap on the version that was read: a merge patch replaces whole lists, such as the finalizers, and would
// remove what another client has added meanwhile.
func Patch(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	change()
	return wrap(c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})), doing, before)
}

// PatchOwn is Patch for fields that no other client writes and that are no lists. It compares the UID alone: it is not refused because
// another client has written other fields since the object was read. An object of the same name that came later is a conflict.
func PatchOwn(ctx context.Context, c client.Client, object client.Object, doing string, change func()) error {
	before := object.DeepCopyObject().(client.Object)
	before.SetUID("") // so that the patch has it
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

// OnUpdate is a handler of informers for changes of an object. One that was replaced by another of its name has not changed.
func OnUpdate[T client.Object](changed func(before, after T)) toolscache.ResourceEventHandlerFuncs {
	return toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(from, to any) {
		before, ok := from.(T)
		if after, also := to.(T); ok && also && before.GetUID() == after.GetUID() {
			changed(before, after)
		}
	}}
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
