// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Drain takes a server out of the pool, as maintenance does: its node is drained, and no Machine claims it again.
func Drain(name string) Change {
	return func(s *view.Snapshot) ([]string, error) {
		host, err := view.New(s).Host(name)
		if err != nil {
			return nil, err
		}
		notes := leave(s, host)
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.MaintenanceAnnotationKey, "what-if")
		return append(notes, fmt.Sprintf("server %s/%s is in maintenance", host.Namespace, host.Name)), nil
	}
}

// Without removes the servers that a selector of labels selects.
func Without(selector labels.Selector) Change {
	return func(s *view.Snapshot) ([]string, error) {
		var hosts []*bmov1alpha1.BareMetalHost
		var gone []string
		for i := range s.Management.Hosts {
			if host := &s.Management.Hosts[i]; selector.Matches(labels.Set(host.Labels)) {
				hosts, gone = append(hosts, host), append(gone, host.Namespace+"/"+host.Name)
			}
		}
		if len(gone) == 0 {
			return nil, fmt.Errorf("no BareMetalHost has labels that %q selects: kubectl get baremetalhosts -A --show-labels", selector)
		}
		notes := leave(s, hosts...)
		s.Management.Hosts = slices.DeleteFunc(s.Management.Hosts, func(host bmov1alpha1.BareMetalHost) bool {
			return selector.Matches(labels.Set(host.Labels))
		})
		what := "servers are"
		if len(gone) == 1 {
			what = "server is"
		}
		return append([]string{fmt.Sprintf("%d %s gone: %s", len(gone), what, strings.Join(gone, ", "))}, notes...), nil
	}
}

// maxMore is how many servers can be added.
const maxMore = 10_000

// Add adds free servers of a NodeType. They are like its first server, and in the same place.
func Add(count int, nodeType string) Change {
	return func(s *view.Snapshot) ([]string, error) {
		if count < 1 || count > maxMore {
			return nil, fmt.Errorf("%d servers cannot be added: it must be 1 to %d", count, maxMore)
		}
		if !slices.ContainsFunc(s.Management.NodeTypes, func(known v1alpha1.NodeType) bool { return known.Name == nodeType }) {
			return nil, fmt.Errorf("NodeType %q was not found", nodeType)
		}
		ofType := map[types.NamespacedName]bool{}
		for _, server := range view.New(s).Servers() {
			ofType[server.Key()] = slices.Contains(server.Types, nodeType)
		}
		var like *bmov1alpha1.BareMetalHost
		for i := range s.Management.Hosts {
			host := &s.Management.Hosts[i]
			if (like == nil || host.Name < like.Name) && ofType[client.ObjectKeyFromObject(host)] {
				like = host
			}
		}
		if like == nil {
			return nil, fmt.Errorf("NodeType %s has no server that others could be like: add a BareMetalHost that it selects", nodeType)
		}
		sample := *like.DeepCopy()
		release(&sample)
		sample.Annotations = nil
		sample.Status.OperationalStatus, sample.Status.ErrorType, sample.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, "", ""
		for i := range count {
			added := *sample.DeepCopy()
			added.Name = fmt.Sprintf("%s-new-%d", nodeType, i+1)
			added.UID = types.UID("what-if " + added.Name)
			s.Management.Hosts = append(s.Management.Hosts, added)
		}
		return []string{fmt.Sprintf("the new servers are like %s/%s, and where that is: %s", sample.Namespace, sample.Name,
			labels.Set(sample.Labels))}, nil
	}
}

// leave drains the nodes of servers and releases the servers that Machines have.
func leave(s *view.Snapshot, hosts ...*bmov1alpha1.BareMetalHost) (notes []string) {
	fleet := view.New(s)
	machines, claims, nodes := map[types.UID]bool{}, map[string]bool{}, map[string]bool{}
	for _, host := range hosts {
		machine := fleet.MachineOn(host)
		if machine == nil {
			continue
		}
		machines[machine.UID] = true
		release(host)
		if !ofTenantRead(s, machine) {
			notes = append(notes, fmt.Sprintf("server %s/%s has a node of another tenant, whose pods are not known", host.Namespace, host.Name))
			continue
		}
		claims[machine.Name] = true
		if machine.Status.NodeName != "" {
			nodes[machine.Status.NodeName] = true
		}
	}
	s.Management.Machines = slices.DeleteFunc(s.Management.Machines, func(machine v1alpha1.Machine) bool { return machines[machine.UID] })
	t := s.Tenant
	if t == nil {
		return notes
	}
	t.NodeClaims = slices.DeleteFunc(t.NodeClaims, func(claim karpv1.NodeClaim) bool { return claims[claim.Name] })
	t.Nodes = slices.DeleteFunc(t.Nodes, func(node corev1.Node) bool { return nodes[node.Name] })
	t.Pods = slices.DeleteFunc(t.Pods, func(pod corev1.Pod) bool {
		if !nodes[pod.Spec.NodeName] {
			return false
		}
		if metav1.GetControllerOf(&pod) == nil && podutils.IsActive(&pod) {
			notes = append(notes, fmt.Sprintf("pod %s/%s on node %s has no controller that would make it again", pod.Namespace, pod.Name,
				pod.Spec.NodeName))
			return true
		}
		return !podutils.IsReschedulable(&pod)
	})
	for i := range t.Pods {
		if nodes[t.Pods[i].Spec.NodeName] {
			unschedule(&t.Pods[i])
		}
	}
	return notes
}

// ofTenantRead reports whether a Machine belongs to the tenant cluster that was read.
func ofTenantRead(s *view.Snapshot, machine *v1alpha1.Machine) bool {
	tenant, reference := s.TenantCluster(), machine.Spec.TenantClusterRef
	return tenant != nil && machine.Namespace == tenant.Namespace && reference != nil && reference.Name == tenant.Name
}

// release makes a host claimable.
func release(host *bmov1alpha1.BareMetalHost) {
	host.Spec.ConsumerRef, host.Spec.Image, host.Spec.UserData, host.Spec.NetworkData, host.Spec.MetaData = nil, nil, nil, nil, nil
	delete(host.Annotations, v1alpha1.NodeTypeAnnotationKey)
	host.Status.Provisioning.State, host.Status.Provisioning.Image = bmov1alpha1.StateAvailable, bmov1alpha1.Image{}
}
