// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Mirrors are where servers fetch packages and container images from when they boot for the first time. They are how a server is
// prepared and not what is installed on it: a change concerns the servers that are installed later, and replaces no Machine.
type Mirrors struct {
	// Packages are mirrors of package repositories: those that the image is configured for, of apt, dnf or yum, and Kubernetes', which is
	// pkgs.k8s.io. A mirror keeps the signatures of the repository.
	// +optional
	// +listType=map
	// +listMapKey=upstream
	// +kubebuilder:validation:MaxItems=32
	Packages []Mirror `json:"packages,omitempty"`
	// Images are mirrors of registries of container images. The upstream is the registry as it stands in references, such as
	// registry.k8s.io or registry.example.com:5000, or _default for all that are not listed. The URL is where its API is: with a path,
	// that of the API's root, such as https://harbor.example.com/v2/registry.k8s.io.
	// +optional
	// +listType=map
	// +listMapKey=upstream
	// +kubebuilder:validation:MaxItems=32
	Images []Mirror `json:"images,omitempty"`
	// CABundle are certificates in PEM that servers trust, so that they can verify the mirrors.
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	CABundle string `json:"caBundle,omitempty"`
}

// Mirror is what stands for an upstream.
type Mirror struct {
	// Upstream is the beginning of the URLs that the mirror stands for, without https:// or http://: deb.debian.org/debian.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Upstream string `json:"upstream"`
	// URL of the mirror, with https or http. A mirror of pkgs.k8s.io needs https: the key of its packages is fetched from there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	URL string `json:"url"`
}
