// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/kubelet"
)

// kwok manages a Node with this label and annotation. It must select by the label (--manage-nodes-with-label-selector):
// otherwise it keeps renewing the lease of a Node that loses the annotation.
const (
	KwokNodeKey   = "kwok.x-k8s.io/node"
	KwokNodeValue = "fake"
	// KwokLabelSelector is the value of that flag.
	KwokLabelSelector = KwokNodeKey + "=" + KwokNodeValue
)

// defaultArchitecture is that of a server without one.
const defaultArchitecture = "amd64"

// register makes the Node, or brings an existing one up to date, and then reports its boot and its accelerators, as the kubelet,
// a device plugin and DRA drivers do. It can be called again after an error.
func register(ctx context.Context, now time.Time, identity *rest.Config, server Server, join bootstrap.Join, bootID types.UID) error {
	clientset, disconnect, err := connect(identity)
	if err != nil {
		return err
	}
	defer disconnect()
	node := nodeOf(now, server, join)
	if _, err := clientset.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		err = patchNode(ctx, clientset, join.NodeName, "", metadataPatch(node.Labels, node.Annotations))
		if err != nil {
			return fmt.Errorf("updating Node %s, %w", join.NodeName, err)
		}
	} else if err != nil {
		return fmt.Errorf("registering Node %s, %w", join.NodeName, err)
	}
	capacity, allocatable := resourcesOf(server, join)
	info := map[string]any{"bootID": bootID}
	if join.KubernetesVersion != "" { // otherwise the image has a kubelet
		info["kubeletVersion"] = join.KubernetesVersion + ".0"
	}
	status := map[string]any{"capacity": capacity, "allocatable": allocatable, "nodeInfo": info}
	if err := patchNode(ctx, clientset, join.NodeName, "status", map[string]any{"status": status}); err != nil {
		return fmt.Errorf("reporting the boot and the resources of Node %s, %w", join.NodeName, err)
	}
	return publish(ctx, clientset, server, join.NodeName)
}

// abandon removes the Node from kwok. A missing Node is no error.
func abandon(ctx context.Context, identity *rest.Config, nodeName string) error {
	clientset, disconnect, err := connect(identity)
	if err != nil {
		return err
	}
	defer disconnect()
	gone := map[string]any{KwokNodeKey: nil}
	err = patchNode(ctx, clientset, nodeName, "", metadataPatch(gone, gone))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing Node %s from kwok, %w", nodeName, err)
	}
	return nil
}

// nodeOf returns the Node as the kubelet first creates it: not ready, and without extended resources.
func nodeOf(now time.Time, server Server, join bootstrap.Join) *corev1.Node {
	architecture := cmp.Or(server.Architecture, defaultArchitecture)
	labels := map[string]string{
		corev1.LabelHostname:   join.NodeName,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: architecture,
		KwokNodeKey:            KwokNodeValue,
	}
	maps.Copy(labels, join.Labels)
	capacity, allocatable := resourcesOf(server, join)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        join.NodeName,
			Labels:      labels,
			Annotations: map[string]string{KwokNodeKey: KwokNodeValue},
		},
		Spec: corev1.NodeSpec{ProviderID: join.ProviderID, Taints: join.Taints},
		Status: corev1.NodeStatus{
			Capacity:    withoutExtended(capacity),
			Allocatable: withoutExtended(allocatable),
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionFalse,
				Reason: "KubeletNotReady", Message: "the emulated server has just registered",
				// Without a transition time, Karpenter's node repair would treat the node as not ready since the epoch.
				LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
			}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: join.NodeName}},
			NodeInfo:  corev1.NodeSystemInfo{Architecture: architecture, OperatingSystem: "linux"},
		},
	}
}

func metadataPatch[V any](labels map[string]V, annotations map[string]V) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
}

func patchNode(ctx context.Context, clientset kubernetes.Interface, name, subresource string, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch, %w", err)
	}
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	_, err = clientset.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, subresources...)
	return err
}

// Firmware and kernel keep this share of the memory in the slots: no node has all of it.
const keptMemory = 50 // one part in so many

// fileSystem is what the file system of the kubelet has, in bytes, of the disk of 480 GiB that inspection finds.
const fileSystem = 440 << 30

// resourcesOf returns what a kubelet reports for the server: what its kernel shows of the hardware, and what of it pods may use
// after the reservations in kubelet's arguments.
func resourcesOf(server Server, join bootstrap.Join) (capacity, allocatable corev1.ResourceList) {
	machine := server.Capacity.DeepCopy()
	if memory, has := machine[corev1.ResourceMemory]; has {
		memory.Sub(*resource.NewQuantity(memory.Value()>>20/keptMemory<<20, resource.BinarySI))
		machine[corev1.ResourceMemory] = memory
	}
	if _, has := machine[corev1.ResourceEphemeralStorage]; !has {
		machine[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(fileSystem, resource.BinarySI)
	}
	return kubelet.Resources(machine, join.KubeletArgs)
}

// withoutExtended removes extended resources.
func withoutExtended(resources corev1.ResourceList) corev1.ResourceList {
	own := corev1.ResourceList{}
	for name, amount := range resources {
		if !strings.Contains(string(name), "/") {
			own[name] = amount
		}
	}
	return own
}
