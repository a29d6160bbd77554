// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/holdback"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// store has the objects of a cluster in memory. It is the client of core and the provider while they plan, so it has
// only Get, List, Create and Delete of client.Client. A kind without objects is empty.
type store struct {
	client.Client
	objects map[reflect.Type]*objects
	// onCreate is called with each new object before the store keeps it. It may be nil.
	onCreate func(client.Object)
}

type objects struct {
	// keys are the sorted keys of byKey.
	keys  []client.ObjectKey
	byKey map[client.ObjectKey]client.Object
}

func newStore() *store { return &store{objects: map[reflect.Type]*objects{}} }

// add adds objects. They belong to the store afterwards.
func add[T any, P interface {
	*T
	client.Object
}](to *store, items []T) {
	for i := range items {
		to.set(P(&items[i]))
	}
}

// all returns the objects of a kind, by namespace and name.
func all[T any](store *store) []T {
	known := store.objects[reflect.TypeFor[T]()]
	if known == nil {
		return nil
	}
	items := make([]T, 0, len(known.keys))
	for _, key := range known.keys {
		items = append(items, *any(known.byKey[key]).(*T))
	}
	return items
}

func (s *store) set(object client.Object) {
	kind, key := reflect.TypeOf(object).Elem(), client.ObjectKeyFromObject(object)
	known := s.objects[kind]
	if known == nil {
		known = &objects{byKey: map[client.ObjectKey]client.Object{}}
		s.objects[kind] = known
	}
	if index, found := slices.BinarySearchFunc(known.keys, key, compareKeys); !found {
		known.keys = slices.Insert(known.keys, index, key)
	}
	known.byKey[key] = object
}

func (s *store) remove(object client.Object) {
	known := s.objects[reflect.TypeOf(object).Elem()]
	key := client.ObjectKeyFromObject(object)
	if index, found := slices.BinarySearchFunc(known.keys, key, compareKeys); found {
		known.keys = slices.Delete(known.keys, index, index+1)
		delete(known.byKey, key)
	}
}

func compareKeys(a, b client.ObjectKey) int {
	if order := strings.Compare(a.Namespace, b.Namespace); order != 0 {
		return order
	}
	return strings.Compare(a.Name, b.Name)
}

// find returns the stored object, and not a copy.
func (s *store) find(object client.Object, key client.ObjectKey) client.Object {
	if known := s.objects[reflect.TypeOf(object).Elem()]; known != nil {
		return known.byKey[key]
	}
	return nil
}

// Get implements client.Reader.
func (s *store) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	found := s.find(object, key)
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(object).Elem().Name()}, key.Name)
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader.
func (s *store) List(_ context.Context, list client.ObjectList, from ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(from)
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	known := s.objects[items.Type().Elem()]
	items.SetZero()
	if known == nil {
		return nil
	}
	var wanted []func(client.Object) bool
	if options.FieldSelector != nil {
		for _, requirement := range options.FieldSelector.Requirements() {
			field, value := fields[requirement.Field], requirement.Value
			if field == nil {
				return fmt.Errorf("listing %T by field %s: nothing here is indexed by it", list, requirement.Field)
			}
			wanted = append(wanted, func(object client.Object) bool { return field(object) == value })
		}
	}
	selected := reflect.MakeSlice(items.Type(), 0, 0)
	for _, key := range known.keys {
		object := known.byKey[key]
		if options.Namespace != "" && options.Namespace != key.Namespace ||
			options.LabelSelector != nil && !options.LabelSelector.Matches(labels.Set(object.GetLabels())) ||
			slices.ContainsFunc(wanted, func(meets func(client.Object) bool) bool { return !meets(object) }) {
			continue
		}
		if options.UnsafeDisableDeepCopy == nil || !*options.UnsafeDisableDeepCopy {
			object = object.DeepCopyObject().(client.Object)
		}
		selected = reflect.Append(selected, reflect.ValueOf(object).Elem())
	}
	items.Set(selected)
	return nil
}

// Create implements client.Writer.
func (s *store) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if s.onCreate != nil {
		s.onCreate(object)
	}
	s.set(object.DeepCopyObject().(client.Object))
	return nil
}

// Delete implements client.Writer.
func (s *store) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	s.remove(object)
	return nil
}

// fields are the fields that core and the provider list by.
var fields = map[string]func(client.Object) string{
	"spec.nodeName":                         kube.Of(func(pod *corev1.Pod) string { return pod.Spec.NodeName }),
	holdback.NominatedField:                 kube.Of(func(pod *corev1.Pod) string { return pod.Status.NominatedNodeName }),
	"spec.template.spec.nodeClassRef.group": ofPool(func(class *karpv1.NodeClassReference) string { return class.Group }),
	"spec.template.spec.nodeClassRef.kind":  ofPool(func(class *karpv1.NodeClassReference) string { return class.Kind }),
	"spec.template.spec.nodeClassRef.name":  ofPool(func(class *karpv1.NodeClassReference) string { return class.Name }),
	"spec.nodeClassRef.group":               ofClaim(func(class *karpv1.NodeClassReference) string { return class.Group }),
	"spec.nodeClassRef.kind":                ofClaim(func(class *karpv1.NodeClassReference) string { return class.Kind }),
	"status.providerID":                     kube.Of(func(claim *karpv1.NodeClaim) string { return claim.Status.ProviderID }),
}

func ofPool(field func(*karpv1.NodeClassReference) string) func(client.Object) string {
	return func(object client.Object) string {
		if pool, isPool := object.(*karpv1.NodePool); isPool && pool.Spec.Template.Spec.NodeClassRef != nil {
			return field(pool.Spec.Template.Spec.NodeClassRef)
		}
		return ""
	}
}

func ofClaim(field func(*karpv1.NodeClassReference) string) func(client.Object) string {
	return func(object client.Object) string {
		if claim, isClaim := object.(*karpv1.NodeClaim); isClaim && claim.Spec.NodeClassRef != nil {
			return field(claim.Spec.NodeClassRef)
		}
		return ""
	}
}
