// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

// Bounds keep a workload from taking all memory. They are checked before any pod is built.
type Bounds struct {
	// Pods is the largest number of pods in all documents.
	Pods int
	// Values is the largest number of YAML values in all pods. A pod of a thousand containers takes as much memory as
	// a thousand pods.
	Values int
}

// FileBounds keep a typo in a file from taking all memory.
var FileBounds = Bounds{Pods: 100_000, Values: 10_000_000}

// Workload reads the pods that a file of Pods, Deployments, ReplicaSets, StatefulSets and Jobs asks for. Unless it is
// nil, replicas overrides the number in the documents. namespace is for pods without a namespace. The error names the
// document.
func Workload(from io.Reader, namespace string, replicas *int, most Bounds) ([]corev1.Pod, error) {
	if replicas != nil && (*replicas < 1 || *replicas > most.Pods) {
		return nil, fmt.Errorf("--replicas is %d: it must be 1 to %d", *replicas, most.Pods)
	}
	pods, values := []corev1.Pod(nil), 0
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(from))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d cannot be read: %w", number, err)
		}
		if isEmpty(document) {
			continue
		}
		header := metav1.TypeMeta{}
		if err := yaml.Unmarshal(document, &header); err != nil {
			return nil, fmt.Errorf("document %d is not right: %w", number, err)
		}
		if header.Kind == "" || header.APIVersion == "" {
			return nil, fmt.Errorf("document %d has no apiVersion and kind: it must be %s", number, kinds)
		}
		each, err := valuesIn(document)
		if err == nil && each > most.Values {
			err = fmt.Errorf("it has %d values, and may have %d", each, most.Values)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not right: %w", number, err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
			return nil, fmt.Errorf("document %d is a %s of %s, which is not known here: it must be %s", number, header.Kind, header.APIVersion,
				kinds)
		case err != nil:
			return nil, fmt.Errorf("document %d, a %s, is not right: %s", number, header.Kind, strings.TrimPrefix(err.Error(),
				"strict decoding error: "))
		}
		view.PlainAll(object)
		fits := func(count int) error {
			if values += count * each; len(pods)+count > most.Pods {
				return fmt.Errorf("these are more than %d pods together", most.Pods)
			}
			if values > most.Values {
				return fmt.Errorf("%d pods of %d values each are more than %d values together: ask for fewer or smaller pods", count, each,
					most.Values)
			}
			return nil
		}
		made, err := podsOf(object, namespace, replicas, most.Pods, fits)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		pods = append(pods, made...)
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("it asks for no pod: it must have documents that are %s", kinds)
	}
	return pods, nil
}

const kinds = "a Pod, Deployment, ReplicaSet, StatefulSet or Job"

// isEmpty reports whether a document has nothing but comments.
func isEmpty(document []byte) bool {
	for line := range strings.Lines(string(document)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// valuesIn counts the values of a document: maps, lists and their elements.
func valuesIn(document []byte) (int, error) {
	var tree any
	if err := yaml.Unmarshal(document, &tree); err != nil {
		return 0, err
	}
	var count func(any) int
	count = func(value any) int {
		all := 1
		switch typed := value.(type) {
		case map[string]any:
			for _, item := range typed {
				all += count(item)
			}
		case []any:
			for _, item := range typed {
				all += count(item)
			}
		}
		return all
	}
	return count(tree), nil
}

// podsOf returns the pods that an object asks for, if fits accepts their number.
func podsOf(object runtime.Object, namespace string, replicas *int, most int, fits func(int) error) ([]corev1.Pod, error) {
	var template corev1.PodTemplateSpec
	count := 1
	switch typed := object.(type) {
	case *corev1.Pod:
		template = corev1.PodTemplateSpec{ObjectMeta: typed.ObjectMeta, Spec: typed.Spec}
	case *appsv1.Deployment:
		template, count = typed.Spec.Template, int(ptr.Deref(typed.Spec.Replicas, 1))
	case *appsv1.ReplicaSet:
		template, count = typed.Spec.Template, int(ptr.Deref(typed.Spec.Replicas, 1))
	case *appsv1.StatefulSet:
		template, count = typed.Spec.Template, int(ptr.Deref(typed.Spec.Replicas, 1))
	case *batchv1.Job:
		template, count = typed.Spec.Template, int(ptr.Deref(typed.Spec.Parallelism, 1))
		if completions := typed.Spec.Completions; completions != nil {
			count = min(count, int(*completions))
		}
	default:
		kind := object.GetObjectKind().GroupVersionKind().Kind
		return nil, fmt.Errorf("a %s is not a workload that is planned here: it must be %s", kind, kinds)
	}
	about, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	kind := object.GetObjectKind().GroupVersionKind()
	if about.GetName() == "" && about.GetGenerateName() == "" {
		return nil, fmt.Errorf("the %s has no metadata.name", kind.Kind)
	}
	if len(template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("%s %s has no containers", kind.Kind, about.GetName())
	}
	if replicas != nil {
		count = *replicas
	}
	if count < 0 || count > most {
		return nil, fmt.Errorf("%s %s asks for %d pods: it must be 0 to %d", kind.Kind, about.GetName(), count, most)
	}
	if err := fits(count); err != nil {
		return nil, err
	}
	base := about.GetName()
	if base == "" {
		base = strings.TrimSuffix(about.GetGenerateName(), "-")
	}
	if about.GetNamespace() != "" {
		namespace = about.GetNamespace()
	}
	_, single := object.(*corev1.Pod)
	pods := make([]corev1.Pod, count)
	for i := range pods {
		name := base
		if !single || count > 1 {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		pods[i] = corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID("what-if " + namespace + "/" + name), Labels: template.Labels},
			Spec: view.TrimPodSpec(template.Spec.DeepCopy()),
		}
		applyDefaults(&pods[i].Spec)
	}
	return pods, nil
}

// applyDefaults does what the API server does: a container without a request for a resource requests its limit.
func applyDefaults(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			resources := &containers[i].Resources
			for name, quantity := range resources.Limits {
				if _, requested := resources.Requests[name]; requested {
					continue
				}
				if resources.Requests == nil {
					resources.Requests = corev1.ResourceList{}
				}
				resources.Requests[name] = quantity
			}
		}
	}
}
