// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Fake returns an environment without an API server: its client keeps the objects in memory, thousands of times a second,
// and shares them with no other environment. It does what an API server does to metadata and to subresources, and
// validates our kinds and Karpenter's by their definitions. It sets no defaults, runs no admission and collects no garbage,
// so a package that uses it also runs some of its cases on an API server. Config is nil. Indexes are for lists with field
// selectors.
func Fake(t testing.TB, indexes ...Index) *Environment {
	t.Helper()
	shared, err := fakeParts()
	if err != nil {
		t.Fatal(err)
	}
	stored := &objects{
		ObjectTracker: clienttesting.NewObjectTracker(shared.scheme, serializer.NewCodecFactory(shared.scheme).UniversalDecoder()),
		withStatus:    shared.withStatus, validators: shared.validators,
	}
	builder := fake.NewClientBuilder().WithScheme(shared.scheme).WithStatusSubresource(shared.withStatus...).WithObjectTracker(stored)
	for _, index := range indexes {
		builder = builder.WithIndex(index.Object, index.Field, index.Values)
	}
	return &Environment{Scheme: shared.scheme, Client: interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Get: stored.get, List: stored.list, Delete: deleteFrom,
		Patch: func(ctx context.Context, direct client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			return stored.patch(direct, object, patch, len(options),
				func(patched client.Object) error { return direct.Update(ctx, patched) },
				func() error { return direct.Patch(ctx, object, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, direct client.Client, name string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			sub := direct.SubResource(name)
			return stored.patch(direct, object, patch, len(options),
				func(patched client.Object) error { return sub.Update(ctx, patched) },
				func() error { return sub.Patch(ctx, object, patch, options...) })
		},
	})}
}

// Index is an index of a manager's cache.
type Index struct {
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// NodeOfPod is what core and others index Pods by, as the field spec.nodeName.
func NodeOfPod(object client.Object) []string { return []string{object.(*corev1.Pod).Spec.NodeName} }

type fakeShared struct {
	scheme     *runtime.Scheme
	withStatus []client.Object
	validators map[reflect.Type]*validator
}

// fakeParts are shared by all fakes. Parsing the CRDs takes longer than most tests.
var fakeParts = sync.OnceValues(func() (fakeShared, error) {
	shared := fakeShared{
		scheme: Scheme(), withStatus: []client.Object{&bmov1alpha1.BareMetalHost{}, &resourcev1.ResourceClaim{}},
		validators: map[reflect.Type]*validator{},
	}
	all, err := definitions()
	if err != nil {
		return shared, err
	}
	for _, definition := range all {
		for _, version := range definition.Spec.Versions {
			kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind}
			typed, err := shared.scheme.New(kind)
			if runtime.IsNotRegisteredError(err) {
				continue // no test can use it
			}
			object, ok := typed.(client.Object)
			if !ok {
				return shared, fmt.Errorf("%s is not an object", kind)
			}
			if version.Subresources != nil && version.Subresources.Status != nil {
				shared.withStatus = append(shared.withStatus, object)
			}
			if shared.validators[reflect.TypeOf(typed)], err = newValidator(kind.GroupKind(), version.Schema); err != nil {
				return shared, err
			}
		}
	}
	return shared, nil
})

// deleteFrom checks the UID among the preconditions, which the fake client ignores.
func deleteFrom(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.DeleteOption) error {
	asked := (&client.DeleteOptions{}).ApplyOptions(options)
	if asked.Preconditions == nil || asked.Preconditions.UID == nil {
		return direct.Delete(ctx, object, options...)
	}
	kind, err := apiutil.GVKForObject(object, direct.Scheme())
	if err != nil {
		return err
	}
	for {
		stored := &metav1.PartialObjectMetadata{}
		stored.SetGroupVersionKind(kind)
		if err := direct.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
			return err
		}
		if stored.UID != *asked.Preconditions.UID {
			return uidConflict(kind, object.GetName())
		}
		version := asked.Preconditions.ResourceVersion
		if version == nil {
			version = &stored.ResourceVersion
		}
		err := direct.Delete(ctx, object, client.Preconditions{ResourceVersion: version})
		if !apierrors.IsConflict(err) || asked.Preconditions.ResourceVersion != nil {
			return err
		}
	}
}

func uidConflict(kind schema.GroupVersionKind, name string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name,
		errors.New("the UID in the precondition does not match"))
}

// get reads a typed object as it is stored. The fake client writes it as JSON and reads that back, which takes ten times as long and
// changes nothing: asSent has done it.
func (o *objects) get(ctx context.Context, direct client.WithWatch, key client.ObjectKey, object client.Object,
	options ...client.GetOption) error {
	if !typed(object) {
		return direct.Get(ctx, key, object, options...)
	}
	return o.read(direct.Scheme(), key, object)
}

func (o *objects) read(scheme *runtime.Scheme, key client.ObjectKey, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	stored, err := o.Get(resource, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	assign(object, stored)
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	object.SetManagedFields(nil)
	return nil
}

// list reads typed objects as they are stored. The fake client knows the indexes.
func (o *objects) list(ctx context.Context, direct client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	if !typed(list) || asked.FieldSelector != nil {
		return direct.List(ctx, list, options...)
	}
	kind, err := apiutil.GVKForObject(list, direct.Scheme())
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	stored, err := o.List(resource, kind, asked.Namespace)
	if err != nil {
		return err
	}
	all, err := meta.ExtractList(stored)
	if err != nil {
		return err
	}
	var found []runtime.Object
	for _, item := range all {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		if asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(object.GetLabels())) {
			item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			object.SetManagedFields(nil)
			found = append(found, item)
		}
	}
	assign(list, stored)
	list.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return meta.SetList(list, found)
}

// patch writes what a merge patch makes of the stored object. The fake client makes it twice, and looks at its own stack in between. It
// does what is not simple, also if others have written meanwhile: a patch without a version meets no conflict.
func (o *objects) patch(direct client.Client, object client.Object, patch client.Patch, options int, write func(client.Object) error,
	otherwise func() error) error {
	if patch.Type() != types.MergePatchType || !typed(object) || options > 0 {
		return otherwise()
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	changes := map[string]any{}
	if err := utiljson.Unmarshal(data, &changes); err != nil {
		return err
	}
	patched, _ := object.DeepCopyObject().(client.Object)
	if err := o.read(direct.Scheme(), client.ObjectKeyFromObject(object), patched); err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(patched)
	if err != nil {
		return err
	}
	merge(fields, changes)
	reflect.ValueOf(patched).Elem().SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, patched); err != nil {
		return err
	}
	if err := write(patched); apierrors.IsConflict(err) {
		return otherwise()
	} else if err != nil {
		return err
	}
	assign(object, patched)
	return nil
}

// merge changes fields by a merge patch.
func merge(fields, changes map[string]any) {
	for key, value := range changes {
		change, nested := value.(map[string]any)
		switch {
		case value == nil:
			delete(fields, key)
		case nested:
			before, is := fields[key].(map[string]any)
			if !is {
				before = map[string]any{}
			}
			merge(before, change)
			fields[key] = before
		default:
			fields[key] = value
		}
	}
}

// typed is whether an object, or those of a list, have a Go type of their own.
func typed(object runtime.Object) bool {
	switch object.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return false
	}
	return true
}

func assign(target, from runtime.Object) {
	reflect.ValueOf(target).Elem().Set(reflect.ValueOf(from).Elem())
}

// objects is the fake client with what an API server does on each write.
type objects struct {
	clienttesting.ObjectTracker
	withStatus []client.Object
	validators map[reflect.Type]*validator

	lock    sync.Mutex
	version uint64
}

// Create sets UID, creationTimestamp and generation, and drops the status if that is a subresource.
func (o *objects) Create(resource schema.GroupVersionResource, object runtime.Object, namespace string,
	options ...metav1.CreateOptions) error {
	o.lock.Lock()
	defer o.lock.Unlock()
	created, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	created.SetUID(uuid.NewUUID())
	created.SetCreationTimestamp(metav1.Now())
	if o.hasStatus(object) {
		field(object, "Status").SetZero()
	}
	if field(object, "Spec").IsValid() {
		created.SetGeneration(1)
	}
	if err := asSent(object); err != nil {
		return err
	}
	if err := o.validators[reflect.TypeOf(object)].validate(nil, object); err != nil {
		return err
	}
	created.SetResourceVersion(o.nextVersion())
	return o.ObjectTracker.Create(resource, object, namespace, options...)
}

// Update stores the object.
func (o *objects) Update(resource schema.GroupVersionResource, object runtime.Object, namespace string,
	options ...metav1.UpdateOptions) error {
	return o.replace(resource, object, namespace, func() error { return o.ObjectTracker.Update(resource, object, namespace, options...) })
}

// Patch stores the object that a patch has been applied to.
func (o *objects) Patch(resource schema.GroupVersionResource, object runtime.Object, namespace string,
	options ...metav1.PatchOptions) error {
	return o.replace(resource, object, namespace, func() error { return o.ObjectTracker.Patch(resource, object, namespace, options...) })
}

// replace keeps immutable metadata, and does nothing if nothing changes. Resource versions are never reused, so that a
// stale write cannot hit an object that was created again.
func (o *objects) replace(resource schema.GroupVersionResource, object runtime.Object, namespace string, store func() error) error {
	o.lock.Lock()
	defer o.lock.Unlock()
	after, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	stored, err := o.Get(resource, namespace, after.GetName())
	if err != nil {
		return err
	}
	before, err := meta.Accessor(stored)
	if err != nil {
		return err
	}
	if after.GetUID() != "" && after.GetUID() != before.GetUID() {
		return uidConflict(object.GetObjectKind().GroupVersionKind(), after.GetName())
	}
	after.SetUID(before.GetUID())
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetGeneration(before.GetGeneration())
	after.SetResourceVersion(before.GetResourceVersion())
	if !before.GetDeletionTimestamp().IsZero() {
		after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	}
	if err := asSent(object); err != nil {
		return err
	}
	stored.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	if equality.Semantic.DeepEqual(stored, object) {
		return nil
	}
	if err := o.validators[reflect.TypeOf(object)].validate(stored, object); err != nil {
		return err
	}
	if specChanged(stored, object) || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	after.SetResourceVersion(o.nextVersion())
	return store()
}

func (o *objects) nextVersion() string {
	o.version++
	return strconv.FormatUint(o.version, 10)
}

func (o *objects) hasStatus(object runtime.Object) bool {
	return slices.ContainsFunc(o.withStatus, func(kind client.Object) bool { return reflect.TypeOf(kind) == reflect.TypeOf(object) })
}

func specChanged(before, after runtime.Object) bool {
	spec := field(after, "Spec")
	return spec.IsValid() && !equality.Semantic.DeepEqual(field(before, "Spec").Interface(), spec.Interface())
}

// field is a field of a typed object, the zero value if it has none of that name.
func field(object runtime.Object, name string) reflect.Value {
	value := reflect.ValueOf(object).Elem()
	if value.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return value.FieldByName(name)
}

// asSent converts the object to JSON and back: times lose their fractions of seconds, for example.
func asSent(object runtime.Object) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	reflect.ValueOf(object).Elem().SetZero()
	return json.Unmarshal(data, object)
}
