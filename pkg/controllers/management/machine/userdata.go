// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

const (
	// metal3EnvironmentLabel selects the Secrets in baremetal-operator's cache. baremetal-operator labels other Secrets
	// itself, but then needs a second look at them.
	metal3EnvironmentLabel = "environment.metal3.io"
	metal3EnvironmentValue = "baremetal"

	// networkDataSecretKey is where Metal3 looks for network data in a Secret.
	networkDataSecretKey = "networkData"

	maxLabelLength = 63
)

// userDataSecret returns the Secret with a Machine's user data. Metal3 reads it from the host's namespace.
func userDataSecret(o hosts.Owner, namespace string, boot bootstrap.Documents) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      hosts.UserDataName(o),
			Labels: map[string]string{
				metal3EnvironmentLabel:      metal3EnvironmentValue,
				v1alpha1.MachineLabelKey:    labelValue(o.Name),
				v1alpha1.MachineUIDLabelKey: string(o.UID),
			},
			Annotations: map[string]string{v1alpha1.MachineAnnotationKey: o.String()},
		},
		Type: corev1.SecretTypeOpaque,
		Data: dataOf(boot),
	}
}

// dataOf returns the documents in the form that Metal3 reads from a Secret.
func dataOf(boot bootstrap.Documents) map[string][]byte {
	data := map[string][]byte{}
	if boot.UserData != nil {
		data[v1alpha1.UserDataSecretKey] = boot.UserData
	}
	if boot.NetworkData != nil {
		data[networkDataSecretKey] = boot.NetworkData
	}
	return data
}

// labelValue cuts a name to the length of a label. It is for people; programs use the UID.
func labelValue(name string) string {
	return strings.TrimRight(name[:min(len(name), maxLabelLength)], "-.")
}

// userDataRetry is the delay before another look at a Machine whose Secret cannot be read or written yet. There is no
// watch: the right to watch Secrets is the right to read them all.
const userDataRetry = 5 * time.Second

// readUserData reads the Secret in the Machine's namespace. Without user data it returns the reason.
func (r servers) readUserData(ctx context.Context, machine *v1alpha1.Machine) (data []byte, missing string, err error) {
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.DataSecretName}
	secret := &corev1.Secret{}
	found, err := kube.Find(ctx, r.live, key, secret)
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Error(err, "Cannot read user data")
		return nil, fmt.Sprintf("spec.bootstrap.dataSecretName is %q: the manager may not read Secrets in namespace %s; install the tenant's "+
			"chart there, or bind the ClusterRole karpenter-metal3-manager-tenant to the manager", key.Name, key.Namespace), nil
	}
	if err != nil {
		return nil, "", err
	}
	if !found {
		return nil, fmt.Sprintf("spec.bootstrap.dataSecretName is %q: there is no Secret of that name in namespace %s yet", key.Name,
			key.Namespace), nil
	}
	data, found = secret.Data[v1alpha1.UserDataSecretKey]
	if !found {
		return nil, fmt.Sprintf("Secret %s has no key %s: put the cloud-init user data there", key, v1alpha1.UserDataSecretKey), nil
	}
	return data, "", nil
}

// writeUserData makes the Secret in the host's namespace hold the documents, if any, also after a crash.
func (r servers) writeUserData(ctx context.Context, o hosts.Owner, namespace string, boot bootstrap.Documents) error {
	secret := userDataSecret(o, namespace, boot)
	if len(secret.Data) == 0 {
		return nil
	}
	err := r.client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = r.updateUserData(ctx, o, namespace, func(map[string][]byte) map[string][]byte { return dataOf(boot) })
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s, %w", namespace, secret.Name, err)
	}
	return nil
}

func (r servers) updateUserData(ctx context.Context, o hosts.Owner, namespace string,
	change func(map[string][]byte) map[string][]byte) error {
	secret := &corev1.Secret{}
	if err := r.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: hosts.UserDataName(o)}, secret); err != nil {
		return err
	}
	if belongsTo, ok := secretOwner(secret); !ok || belongsTo != o {
		return fmt.Errorf("it does not belong to Machine %s: delete it", o)
	}
	before := secret.DeepCopy()
	secret.Data = change(maps.Clone(secret.Data))
	if maps.EqualFunc(before.Data, secret.Data, bytes.Equal) {
		return nil
	}
	return r.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// blankUserData removes the user data from the Secret, because a join token must not outlive its use. The Secret itself stays
// as long as the host refers to it.
func (r servers) blankUserData(ctx context.Context, o hosts.Owner, namespace string) error {
	err := r.updateUserData(ctx, o, namespace, func(data map[string][]byte) map[string][]byte {
		if _, found := data[v1alpha1.UserDataSecretKey]; found {
			data[v1alpha1.UserDataSecretKey] = []byte{}
		}
		return data
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("blanking Secret %s/%s, %w", namespace, hosts.UserDataName(o), err)
	}
	return nil
}

// deleteUserData deletes the Secret in the host's namespace, if it exists and is the Machine's. A tenant may have
// written the input of its name.
func (r servers) deleteUserData(ctx context.Context, o hosts.Owner, namespace string) error {
	key, secret := types.NamespacedName{Namespace: namespace, Name: hosts.UserDataName(o)}, &corev1.Secret{}
	if len(content.IsPathSegmentName(key.Name)) > 0 {
		return nil // no object can have that name, and a host must not stay claimed for it
	}
	found, err := kube.Find(ctx, r.live, key, secret)
	if belongsTo, ours := secretOwner(secret); err != nil || !found || !ours || belongsTo != o {
		return err
	}
	return kube.Delete(ctx, r.client, secret, "deleting")
}

// OrphanSecrets deletes user data of Machines that do not exist, in the hosts' namespaces. The garbage collector of
// Kubernetes does not work across namespaces.
type OrphanSecrets struct{ servers }

// Reconcile checks one Secret, or all Secrets of a namespace if the request has no name. It reads only their metadata.
func (o OrphanSecrets) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secrets, outcome := &metav1.PartialObjectMetadataList{}, ctrl.Result{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	options := []client.ListOption{client.InNamespace(request.Namespace), client.HasLabels{v1alpha1.MachineUIDLabelKey}}
	if request.Name != "" {
		options = append(options, client.MatchingFields{metav1.ObjectNameField: request.Name})
	} else {
		outcome.RequeueAfter = resync
	}
	if err := o.live.List(ctx, secrets, options...); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing user data in namespace %s, %w", request.Namespace, err)
	}
	var failures []error
	for i := range secrets.Items {
		secrets.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		failures = append(failures, o.sweep(ctx, &secrets.Items[i]))
	}
	return outcome, errors.Join(failures...)
}

func (o OrphanSecrets) sweep(ctx context.Context, secret *metav1.PartialObjectMetadata) error {
	owner, ok := secretOwner(secret)
	if !ok {
		return nil
	}
	if machine, err := kube.FindMachine(ctx, o.live, owner.Reference()); err != nil || machine != nil {
		return err
	}
	if err := kube.Delete(ctx, o.client, secret, "deleting"); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Deleted user data whose Machine does not exist", "Machine", owner.String(), "UID", owner.UID)
	return nil
}

// secretOwner returns the Machine of a Secret in a host's namespace. It returns false for any other Secret.
func secretOwner(secret client.Object) (hosts.Owner, bool) {
	uid := secret.GetLabels()[v1alpha1.MachineUIDLabelKey]
	namespace, name, found := strings.Cut(secret.GetAnnotations()[v1alpha1.MachineAnnotationKey], "/")
	o := hosts.Owner{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}, UID: types.UID(uid)}
	return o, found && uid != "" && secret.GetName() == hosts.UserDataName(o)
}
