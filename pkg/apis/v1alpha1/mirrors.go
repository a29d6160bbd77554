// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Mirrors are where servers fetch packages and container images from at their first boot. They prepare a server and are
// not part of its installation: a change applies to servers that are installed later, and replaces no Machine.
type Mirrors struct {
	// Packages are mirrors of package repositories: the repositories that the image is configured for, of apt, dnf or
	// yum, and Kubernetes', which is pkgs.k8s.io. A mirror keeps the signatures of the repository.
	// +optional
	// +listType=map
	// +listMapKey=upstream
	// +kubebuilder:validation:MaxItems=32
	Packages []Mirror `json:"packages,omitempty"`
	// Images are mirrors of registries of container images. The upstream is the registry as references name it, such as
	// registry.k8s.io or registry.example.com:5000, or _default for all unlisted ones. The URL leads to the registry's
	// API. A path in it is the root of the API, such as https://harbor.example.com/v2/registry.k8s.io.
	// +optional
	// +listType=map
	// +listMapKey=upstream
	// +kubebuilder:validation:MaxItems=32
	Images []Mirror `json:"images,omitempty"`
	// CABundle has the certificates, in PEM, that servers trust to verify the mirrors.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	CABundle string `json:"caBundle,omitempty"`
}

// Mirror replaces an upstream.
type Mirror struct {
	// Upstream begins the URLs that the mirror replaces, without https:// or http://: deb.debian.org/debian.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Upstream string `json:"upstream"`
	// URL of the mirror, with https or http. A mirror of pkgs.k8s.io needs https: it also serves the packages' key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url"`
}
