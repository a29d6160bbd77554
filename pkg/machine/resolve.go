// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// image returns what a Machine of the type installs, or what is wrong with it, in one sentence.
func (r *Reconciler) image(ctx context.Context, machine *v1alpha1.Machine, typeName string) (bmov1alpha1.Image, string, error) {
	nodeType, provider := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}
	if problem, err := r.find(ctx, typeName, nodeType, "NodeType"); problem != "" || err != nil {
		return bmov1alpha1.Image{}, problem, err
	}
	if problem, err := r.find(ctx, nodeType.Spec.ProviderRef.Name, provider, "NodeProvider"); problem != "" || err != nil {
		return bmov1alpha1.Image{}, problem, err
	}
	set := properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType), properties.OfMachine(machine))
	return r.resolve(ctx, set, "NodeType "+nodeType.Name)
}

// checkOwn finds out what is wrong with the Machine's own properties. What its type adds to them is known only once a
// type has been chosen.
func (r *Reconciler) checkOwn(ctx context.Context, machine *v1alpha1.Machine) (string, error) {
	set := properties.Merge(properties.OfMachine(machine))
	if _, err := set.ServerName(); err != nil {
		return err.Error(), nil
	}
	if set.Get(v1alpha1.PropertyOSImage) == "" {
		return "", nil
	}
	_, problem, err := r.resolve(ctx, set, "")
	return problem, err
}

// resolve fills in what the OSImage says, and makes Metal3's image of it. subject is who to name when a property is
// missing, which no object is to blame for.
func (r *Reconciler) resolve(ctx context.Context, set properties.Set, subject string) (bmov1alpha1.Image, string, error) {
	name, err := set.OSImage()
	if err != nil {
		return bmov1alpha1.Image{}, err.Error(), nil
	}
	if name != "" {
		osImage := &v1alpha1.OSImage{}
		if err := r.client.Get(ctx, types.NamespacedName{Name: name}, osImage); err != nil {
			if apierrors.IsNotFound(err) {
				return bmov1alpha1.Image{}, fmt.Sprintf("property %s of %s is %q, and there is no OSImage of that name: create it or correct the property",
					v1alpha1.PropertyOSImage, set.Source(v1alpha1.PropertyOSImage), name), nil
			}
			return bmov1alpha1.Image{}, "", fmt.Errorf("reading OSImage %s, %w", name, err)
		}
		set, subject = set.WithOSImage(osImage), "OSImage "+name
	}
	image, err := set.Image()
	if err != nil {
		return bmov1alpha1.Image{}, blame(err, subject), nil
	}
	resolved := bmov1alpha1.Image{URL: image.URL, Checksum: image.Checksum, ChecksumType: bmov1alpha1.ChecksumType(image.ChecksumType)}
	if image.Format != "" {
		resolved.DiskFormat = &image.Format
	}
	return resolved, "", nil
}

// blame names the object to correct, if the error does not name one itself.
func blame(err error, subject string) string {
	var wrong *properties.Error
	if errors.As(err, &wrong) && wrong.Source == "" && subject != "" {
		return subject + ": " + err.Error()
	}
	return err.Error()
}

// find reads a cluster-scoped object. That it does not exist is a problem to be shown, not an error.
func (r *Reconciler) find(ctx context.Context, name string, into client.Object, kind string) (string, error) {
	err := r.client.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("%s %q does not exist: create it", kind, name), nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s %s, %w", kind, name, err)
	}
	return "", nil
}
