// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/uuid"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"go.uber.org/zap/zapcore"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const errorLevel = zapcore.ErrorLevel

// Resources makes a ResourceList of pairs of name and quantity: Resources("cpu", "96", "memory", "768Gi").
func Resources(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

// HostsWith selects the hosts that have the labels.
func HostsWith(labels map[string]string) *v1alpha1.HostSelection {
	return &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: labels}}
}

// MadeBy are the owner references of a NodeType that a NodeProvider of that name has made.
func MadeBy(provider string) []metav1.OwnerReference {
	owner := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: provider, UID: types.UID(provider)}}
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("NodeProvider"))}
}

// Namespace makes a namespace with a generated name and returns the name. The API server of a test has no controller
// that deletes what is in a namespace, so it is left to the end of the environment.
func (e *Environment) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(context.Background(), namespace); err != nil {
		t.Fatalf("creating a namespace, %v", err)
	}
	return namespace.Name
}

// JoinedMachine makes a Machine of a MetalNodeClass whose node has these resources, in memory only.
func JoinedMachine(nodeType string, class *v1alpha1.MetalNodeClass, pairs ...string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{}
	machine.Spec.Properties, machine.Spec.KubeletArgs = class.Spec.Properties, class.Spec.KubeletArgs
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "node", Resources: Resources(pairs...)}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	machine.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonJoined}}
	return machine
}

// AvailableHost makes a BareMetalHost as Metal3 leaves it once it can be claimed, in memory only.
func AvailableHost(namespace, name string, labels map[string]string) *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: bmov1alpha1.BareMetalHostSpec{
			BMC:            bmov1alpha1.BMCDetails{Address: "redfish://192.0.2.1/redfish/v1/Systems/1", CredentialsName: name + "-bmc"},
			BootMACAddress: "00:00:5e:00:53:01",
		},
		Status: bmov1alpha1.BareMetalHostStatus{
			OperationalStatus: bmov1alpha1.OperationalStatusOK,
			Provisioning:      bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable},
			HardwareDetails:   &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "x86_64"}},
		},
	}
}

// OpenWebhook is a webhook in the cluster that all pods can ask, as the chart installs it by default, in memory only: its Deployment with
// these arguments, and its configuration.
func OpenWebhook(arguments ...string) []client.Object {
	const namespace = "karpenter-metal3"
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "karpenter-metal3-webhook",
		Labels: map[string]string{"app.kubernetes.io/component": "webhook"}}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Args: append([]string{"--webhook-bind-address=:9443"}, arguments...)}}
	return []client.Object{deployment, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "karpenter-metal3"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: namespace}}}}}}
}

// CreateHost creates the host on the API server with its status, which a create alone drops.
func (e *Environment) CreateHost(t testing.TB, host *bmov1alpha1.BareMetalHost) *bmov1alpha1.BareMetalHost {
	t.Helper()
	ctx, status := context.Background(), host.Status.DeepCopy()
	if err := e.Client.Create(ctx, host); err != nil {
		t.Fatalf("creating host %s, %v", host.Name, err)
	}
	host.Status = *status
	if err := e.Client.Status().Update(ctx, host); err != nil {
		t.Fatalf("writing the status of host %s, %v", host.Name, err)
	}
	return host
}

// UID is a UID that is the same for the same name.
func UID(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }

// MarkTexts writes a text into each field of a host's status that may have any, as Metal3 and Ironic do. Fields for which
// Metal3's definition has a list of values, or a pattern, stay as they are, and so do the state and what is installed.
func MarkTexts(host *bmov1alpha1.BareMetalHost, text string) {
	state := host.Status.Provisioning.State
	markTexts(reflect.ValueOf(&host.Status).Elem(), text)
	host.Status.Provisioning.State = state
}

func markTexts(value reflect.Value, text string) {
	switch value.Type() {
	case reflect.TypeFor[bmov1alpha1.OperationalStatus](), reflect.TypeFor[bmov1alpha1.ErrorType](), reflect.TypeFor[bmov1alpha1.BootMode](),
		reflect.TypeFor[bmov1alpha1.DiskType](), reflect.TypeFor[*bmov1alpha1.RAIDConfig](),
		reflect.TypeOf(bmov1alpha1.ProvisionStatus{}.Firmware),
		reflect.TypeFor[bmov1alpha1.VLANID](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[*metav1.Time](),
		reflect.TypeFor[bmov1alpha1.OperationHistory](), reflect.TypeFor[bmov1alpha1.Image]():
		return
	case reflect.TypeFor[metav1.Condition]():
		value.Set(reflect.ValueOf(metav1.Condition{Type: "Healthy", Status: metav1.ConditionFalse, Reason: "Word", Message: text,
			LastTransitionTime: metav1.Now()}))
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(text)
	case reflect.Pointer:
		if value.IsNil() {
			value.Set(reflect.New(value.Type().Elem()))
		}
		markTexts(value.Elem(), text)
	case reflect.Slice:
		if value.Len() == 0 {
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		}
		for i := range value.Len() {
			markTexts(value.Index(i), text)
		}
	case reflect.Struct:
		for field, fieldValue := range value.Fields() {
			if field.Name != "MAC" { // has a pattern
				markTexts(fieldValue, text)
			}
		}
	}
}

// CreateQuota creates a ResourceQuota and counts for it, as kube-controller-manager does: the namespace has nothing yet.
func CreateQuota(t testing.TB, c client.Client, quota *corev1.ResourceQuota) {
	t.Helper()
	if err := c.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if err := c.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
}

// Properties returns properties as a program reads them from an API server.
func Properties(t testing.TB, values map[string]string) (read v1alpha1.Properties) {
	t.Helper()
	text, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}
