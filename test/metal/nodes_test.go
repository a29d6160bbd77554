// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

// machineOfNode gives the join token of a node its name. No such Machine exists.
func machineOfNode(name string) v1alpha1.MachineReference {
	return v1alpha1.MachineReference{
		Namespace: stack.MachinesNamespace, Name: name, UID: "0c5f3f0e-0000-4000-8000-000000000001",
	}
}

// joinToken makes the token by which a node joins, as a provider does.
func joinToken(t *testing.T, provider client.Client, node string, mode v1alpha1.JoinMode) bootstrap.Token {
	t.Helper()
	token, err := bootstrap.EnsureToken(t.Context(), provider, machineOfNode(node), mode,
		time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// userData returns the user data of a server that joins a cluster with that CA, with a document of a user, which may be
// empty.
func userData(t *testing.T, join bootstrap.Join, authority []byte, document string) []byte {
	t.Helper()
	var err error
	if join.CACertHashes, err = bootstrap.CACertHashes(authority); err != nil {
		t.Fatal(err)
	}
	join.CACertificates = authority
	ours, err := bootstrap.JoinUserData(join)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := bootstrap.UserData([]byte(document), nil, nil, nil, ours)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func nodeIsReady(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("not ready, %s: %s", condition.Reason, condition.Message)
		} else if condition.Type == corev1.NodeReady {
			return nil
		}
	}
	return fmt.Errorf("not ready")
}

// untilNodeReady waits until the server is a ready node of a cluster, which it returns.
func (w *fixture) untilNodeReady(t *testing.T, c client.Client) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	w.until(t, "node "+nodeName+" to be ready", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: nodeName}, node); err != nil {
			return err
		}
		return nodeIsReady(node)
	})
	w.logf("node %s is ready, with %s", nodeName, node.Status.NodeInfo.ContainerRuntimeVersion)
	return node
}

// addressesOf are the internal addresses of a node.
func addressesOf(node *corev1.Node) []string {
	var addresses []string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			addresses = append(addresses, address.Address)
		}
	}
	return addresses
}

// gpus are limits of a pod.
func gpus(count string) corev1.ResourceList {
	return corev1.ResourceList{gpu: resource.MustParse(count)}
}

// workload is a pod that logs its node and the IDs of its GPUs, and ends at once on SIGTERM.
func workload(limits corev1.ResourceList, args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken:  new(bool),
		TerminationGracePeriodSeconds: ptr.To(int64(5)),
		Tolerations:                   []corev1.Toleration{{Key: "example.com/new", Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "workload", Image: images.Reference(images.Workload), ImagePullPolicy: corev1.PullNever, Args: args,
			Resources: corev1.ResourceRequirements{Limits: limits},
			Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
			}}},
		}},
	}
}

// createPod creates a pod without a controller.
func (w *fixture) createPod(t *testing.T, c client.Client, name string, spec corev1.PodSpec) {
	t.Helper()
	w.create(t, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: spec})
}

// podLog waits until the log of a workload is complete, and returns it as its API server does.
func (w *fixture) podLog(t *testing.T, kube kubernetes.Interface, name string) string {
	t.Helper()
	var content []byte
	w.until(t, "pod "+name+" to log its node", func(ctx context.Context) (err error) {
		content, err = kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(content), "workload: pod "+name) { // the last line
			err = fmt.Errorf("its log is %q", content)
		}
		return err
	})
	return strings.TrimSpace(string(content))
}
