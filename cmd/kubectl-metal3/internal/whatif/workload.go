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

// maxPods keeps a typo from taking all memory.
const maxPods = 100_000

// Workload reads the pods that a file of Pods, Deployments, ReplicaSets, StatefulSets and Jobs asks for. Replicas takes the place of what
// the documents say, unless it is nil. Pods without a namespace are in the given one. The error names the document.
func Workload(from io.Reader, namespace string, replicas *int) ([]corev1.Pod, error) {
	if replicas != nil && (*replicas < 1 || *replicas > maxPods) {
		return nil, fmt.Errorf("--replicas is %d: it must be 1 to %d", *replicas, maxPods)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(from))
	var pods []corev1.Pod
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
		made, err := podsOf(object, namespace, replicas)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		if pods = append(pods, made...); len(pods) > maxPods {
			return nil, fmt.Errorf("document %d: these are more than %d pods together", number, maxPods)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("it asks for no pod: it must have documents that are %s", kinds)
	}
	return pods, nil
}

const kinds = "a Pod, Deployment, ReplicaSet, StatefulSet or Job"

// isEmpty returns whether a document has nothing but comments.
func isEmpty(document []byte) bool {
	for line := range strings.Lines(string(document)) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// podsOf are the pods that an object asks for.
func podsOf(object runtime.Object, namespace string, replicas *int) ([]corev1.Pod, error) {
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
	if count < 0 || count > maxPods {
		return nil, fmt.Errorf("%s %s asks for %d pods: it must be 0 to %d", kind.Kind, about.GetName(), count, maxPods)
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

// applyDefaults does what the API server would: what a container is limited to and does not request, it requests.
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
