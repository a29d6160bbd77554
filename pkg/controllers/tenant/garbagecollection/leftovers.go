// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
)

// leftoverPeriod is how often leftovers are searched for although no Machine was deleted.
const leftoverPeriod = 10 * time.Minute

// LeftoverController deletes the join tokens and the user data of Machines that do not exist any more. The
// deletion of a Machine deletes them too; these are left from a time when the provider was down, or in the middle of a write.
type LeftoverController struct {
	clusters tenant.Clusters
}

// NewLeftoverController constructs a garbage collector of join tokens and user data.
func NewLeftoverController(clusters tenant.Clusters) *LeftoverController {
	return &LeftoverController{clusters: clusters}
}

// Reconcile checks all join tokens and user data once. It reads only metadata, so that no secret gets into its memory.
func (c *LeftoverController) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	tokens, err := listSecrets(ctx, c.clusters.Tenant.Live, metav1.NamespaceSystem, v1alpha1.MachineUIDLabelKey)
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("listing join tokens, %w", err)
	}
	for i := range tokens {
		if machine, uid, ok := c.machineOfToken(&tokens[i]); ok {
			if err := c.deleteIfLeftOver(ctx, c.clusters.Tenant.Client, &tokens[i], machine, uid); err != nil {
				return reconciler.Result{}, err
			}
		}
	}
	userData, err := listSecrets(ctx, c.clusters.Management.Live, c.clusters.TenantCluster.Namespace, v1alpha1.MachineLabelKey)
	if err != nil {
		return reconciler.Result{}, fmt.Errorf("listing user data, %w", err)
	}
	for i := range userData {
		if machine, uid, ok := machineOfUserData(&userData[i]); ok {
			if err := c.deleteIfLeftOver(ctx, c.clusters.Management.Client, &userData[i], machine, uid); err != nil {
				return reconciler.Result{}, err
			}
		}
	}
	return reconciler.Result{RequeueAfter: leftoverPeriod}, nil
}

// machineOfToken returns the Machine that a join token was made for. Tokens of Machines in other namespaces belong to
// other providers that share this cluster.
func (c *LeftoverController) machineOfToken(secret *metav1.PartialObjectMetadata) (name string, uid types.UID, ok bool) {
	namespace, name, found := strings.Cut(secret.Annotations[v1alpha1.MachineLabelKey], "/")
	uid = types.UID(secret.Labels[v1alpha1.MachineUIDLabelKey])
	ok = found && name != "" && uid != "" && namespace == c.clusters.TenantCluster.Namespace &&
		strings.HasPrefix(secret.Name, bootstrapapi.BootstrapTokenSecretPrefix)
	return name, uid, ok
}

// machineOfUserData returns the Machine that controls a Secret. If the hosts are in this
// namespace, the manager's Secrets have the same labels, but no Machine controls them.
func machineOfUserData(secret *metav1.PartialObjectMetadata) (name string, uid types.UID, ok bool) {
	owner := metav1.GetControllerOf(secret)
	if owner == nil || owner.Kind != "Machine" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return "", "", false
	}
	return owner.Name, owner.UID, true
}

func (c *LeftoverController) deleteIfLeftOver(ctx context.Context, writer client.Writer, secret *metav1.PartialObjectMetadata,
	machine string, uid types.UID) error {
	exists, err := c.machineExists(ctx, c.clusters.Management.Client, machine, uid)
	if err != nil || exists {
		return err
	}
	if exists, err = c.machineExists(ctx, c.clusters.Management.Live, machine, uid); err != nil || exists {
		return err
	}
	if err := controllers.Delete(ctx, writer, secret, "Machine "+machine+" is gone: deleting"); err != nil {
		return err
	}
	log.FromContext(ctx).Info("deleted secret whose machine is gone", "secret", client.ObjectKeyFromObject(secret), "machine", machine)
	return nil
}

func (c *LeftoverController) machineExists(ctx context.Context, reader client.Reader, name string, uid types.UID) (bool, error) {
	machine := &v1alpha1.Machine{}
	found, err := controllers.Find(ctx, reader, c.clusters.MachineKey(name), machine)
	return found && machine.UID == uid, err
}

func listSecrets(ctx context.Context, live client.Reader, namespace, label string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := live.List(ctx, list, client.InNamespace(namespace), client.HasLabels{label}); err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	}
	return list.Items, nil
}

// Name implements Karpenter's controller interface.
func (c *LeftoverController) Name() string { return "machine.leftovers" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster. All deletions of
// Machines lead to the same request.
func (c *LeftoverController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(singleton.Source()).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &v1alpha1.Machine{},
			handler.TypedFuncs[*v1alpha1.Machine, reconcile.Request]{
				DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.Machine],
					queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
					if c.clusters.Owns(e.Object) {
						queue.Add(reconcile.Request{})
					}
				},
			})).
		Complete(singleton.AsReconciler(c))
}
