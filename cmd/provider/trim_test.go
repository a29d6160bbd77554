// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTrimmed fills every field of an object, of its spec and status, and of its containers, and compares which are left.
func TestTrimmed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		object client.Object
		// parts are what is filled and looked at.
		parts func(client.Object) map[string]any
		want  []string
	}{
		"Node": {
			reason: "all else of nodes is small, and core compares nodes", object: &corev1.Node{},
			parts: func(object client.Object) map[string]any {
				node := object.(*corev1.Node)
				return map[string]any{"spec": &node.Spec, "status": &node.Status}
			},
			want: []string{"status.Images"},
		},
		"Pod": {
			reason: "core plans with requests, ports, volumes, affinity and claims, and with the status",
			object: &corev1.Pod{Spec: corev1.PodSpec{InitContainers: make([]corev1.Container, 1), Containers: make([]corev1.Container, 1)}},
			parts: func(object client.Object) map[string]any {
				pod := object.(*corev1.Pod)
				return map[string]any{"spec": &pod.Spec, "status": &pod.Status, "init": &pod.Spec.InitContainers[0],
					"main": &pod.Spec.Containers[0]}
			},
			want: []string{
				"init.Args", "init.Command", "init.Env", "init.EnvFrom", "init.Lifecycle", "init.LivenessProbe", "init.ReadinessProbe",
				"init.StartupProbe",
				"main.Args", "main.Command", "main.Env", "main.EnvFrom", "main.Lifecycle", "main.LivenessProbe", "main.ReadinessProbe",
				"main.StartupProbe",
			},
		},
		"ReplicaSet": {
			reason: "capacity buffers are planned with what its pods request",
			object: &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}}},
			parts: func(object client.Object) map[string]any {
				set := object.(*appsv1.ReplicaSet)
				return map[string]any{"spec": &set.Spec, "status": &set.Status, "main": &set.Spec.Template.Spec.Containers[0]}
			},
			want: []string{"main.Args", "main.Command", "main.Env", "main.EnvFrom", "main.Lifecycle", "main.LivenessProbe", "main.ReadinessProbe",
				"main.StartupProbe"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, part := range tc.parts(tc.object) {
				fill(reflect.ValueOf(part).Elem())
			}
			for kind, cached := range trimmed() {
				if reflect.TypeOf(kind) != reflect.TypeOf(tc.object) {
					continue
				}
				if _, err := cached.Transform(tc.object); err != nil {
					t.Fatal(err)
				}
			}
			var gone []string
			for part, value := range tc.parts(tc.object) {
				fields := reflect.ValueOf(value).Elem()
				for i := range fields.NumField() {
					if fields.Field(i).IsZero() {
						gone = append(gone, part+"."+fields.Type().Field(i).Name)
					}
				}
			}
			slices.Sort(gone)
			if diff := cmp.Diff(tc.want, gone); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestShareLabels: types with the same domains keep the labels once, and nothing of them is another.
func TestShareLabels(t *testing.T) {
	full := &v1alpha1.NodeType{}
	full.Status.Domains = []v1alpha1.DomainCapacity{
		{Zone: "dc1", Labels: map[string]string{"rack": "r1", "row": "a"}, Capacity: v1alpha1.Capacity{Total: 2}},
		{Zone: "dc1", Labels: map[string]string{"rack": "r2", "row": "a"}, Capacity: v1alpha1.Capacity{Total: 3}},
		{Zone: "dc2"},
	}
	first, second := full.DeepCopy(), full.DeepCopy()
	shareLabels(first)
	shareLabels(second)
	for i := range full.Status.Domains {
		if reflect.ValueOf(first.Status.Domains[i].Labels).Pointer() != reflect.ValueOf(second.Status.Domains[i].Labels).Pointer() {
			t.Errorf("the labels of domain %d are there twice", i)
		}
	}
	if diff := cmp.Diff(full, second); diff != "" {
		t.Errorf("the type is another (-full +shared):\n%s", diff)
	}
}

// fill gives each empty field of a struct a value.
func fill(object reflect.Value) {
	for i := range object.NumField() {
		field := object.Field(i)
		if !field.IsZero() {
			continue
		}
		switch field.Kind() {
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		case reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
		case reflect.Struct:
			fill(field)
		case reflect.String:
			field.SetString("x")
		case reflect.Bool:
			field.SetBool(true)
		default:
			field.SetInt(1)
		}
	}
}
