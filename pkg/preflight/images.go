// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

const (
	imagesCheck   = "images"
	osImagesCheck = "OSImages"
	// atOnce is how many images are requested at a time.
	atOnce = 4
)

// images requests the images of NodeTypes and OSImages, and their checksum files. It does not request URLs that tenants
// write, in Machines and classes.
func (c *Cluster) images(ctx context.Context, http *http.Client) []Result {
	providers, types, images := &v1alpha1.NodeProviderList{}, &v1alpha1.NodeTypeList{}, &v1alpha1.OSImageList{}
	if err := c.list(ctx, providers, types, images); err != nil {
		return []Result{unreadable(imagesCheck, err)}
	}
	locations, results := imageLocations(providers.Items, types.Items, images.Items)
	names := slices.Sorted(maps.Keys(locations))
	asked := make([]Result, len(names))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, location := range names {
		group.Go(func() error {
			asked[i] = askImage(ctx, http, location, locations[location])
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	results = append(results, asked...)
	if len(results) == 0 {
		results = []Result{{Check: imagesCheck, Level: Skip, Message: "no OSImage or NodeType has an image"}}
	}
	return results
}

// OSImages says which NodeTypes name an OSImage that does not exist, directly or through their NodeProvider.
func (c *Cluster) OSImages(ctx context.Context) []Result {
	providers, types, images := &v1alpha1.NodeProviderList{}, &v1alpha1.NodeTypeList{}, &v1alpha1.OSImageList{}
	if err := c.list(ctx, providers, types, images); err != nil {
		result := unreadable(osImagesCheck, err)
		result.Level = Skip // no NodeType is known to lack an OSImage
		return []Result{result}
	}
	exists := lo.KeyBy(images.Items, func(image v1alpha1.OSImage) string { return image.Name })
	byName := providersByName(providers.Items)
	var results []Result
	for i := range types.Items {
		set := propertiesOf(&types.Items[i], byName)
		name := set.Get(v1alpha1.PropertyOSImage)
		if _, found := exists[name]; name != "" && !found {
			results = append(results, Result{Check: "NodeType " + types.Items[i].Name, Level: Fail, Remedy: "kubectl get osimages",
				Message: fmt.Sprintf("the OSImage %s, which %s names, does not exist: servers of this type are installed only for pools and "+
					"Machines with another image", name, set.Source(v1alpha1.PropertyOSImage))})
		}
	}
	if len(results) == 0 {
		results = []Result{{Check: osImagesCheck, Level: OK, Message: "each that a NodeType or its NodeProvider names exists"}}
	}
	return results
}

func (c *Cluster) list(ctx context.Context, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := c.Reader.List(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

func providersByName(providers []v1alpha1.NodeProvider) map[string]*v1alpha1.NodeProvider {
	return lo.KeyBy(lo.ToSlicePtr(providers), func(provider *v1alpha1.NodeProvider) string { return provider.Name })
}

// propertiesOf returns the properties of a NodeType and of its NodeProvider, if that exists.
func propertiesOf(nodeType *v1alpha1.NodeType, byName map[string]*v1alpha1.NodeProvider) properties.Set {
	layers := []properties.Layer{properties.OfType(nodeType)}
	if provider := byName[nodeType.Spec.ProviderRef.Name]; provider != nil {
		layers = []properties.Layer{properties.OfProvider(provider), properties.OfType(nodeType)}
	}
	return properties.Merge(layers...)
}

// imageLocations returns the URLs that may be requested, each with its purpose, and the faults of the others.
func imageLocations(providers []v1alpha1.NodeProvider, types []v1alpha1.NodeType, images []v1alpha1.OSImage) (map[string]string, []Result) {
	locations, results := map[string]string{}, []Result(nil)
	byName := providersByName(providers)
	osImages := lo.KeyBy(lo.ToSlicePtr(images), func(image *v1alpha1.OSImage) string { return image.Name })
	add := func(owner string, set properties.Set, allowed func(properties.Set) error) {
		if set.Get(v1alpha1.PropertyImageURL) == "" {
			return // a class or a Machine may have it
		}
		image, err := set.Image()
		if err == nil {
			err = allowed(set)
		}
		if err != nil {
			results = append(results, Result{Check: owner, Level: Fail, Message: err.Error()})
			return
		}
		locations[cmp.Or(properties.Manifest(image.URL), image.URL)] = "image of " + owner
		if strings.HasPrefix(image.Checksum, "http") { // it is hexadecimal digits, or a URL
			locations[image.Checksum] = "checksum of " + owner
		}
	}
	named := map[string]bool{}
	for i := range types {
		nodeType := &types[i]
		provider, set := byName[nodeType.Spec.ProviderRef.Name], propertiesOf(nodeType, byName)
		name := set.Get(v1alpha1.PropertyOSImage)
		if name != "" {
			if osImages[name] == nil {
				continue // OSImages says so
			}
			named[name] = true
			set = set.WithOSImage(osImages[name])
		}
		add("NodeType "+nodeType.Name, set, func(set properties.Set) error {
			if provider == nil {
				return nil
			}
			return set.CheckImageHosts(provider)
		})
	}
	for i := range images {
		if named[images[i].Name] {
			continue
		}
		add("OSImage "+images[i].Name, properties.Merge().WithOSImage(&images[i]), func(set properties.Set) error {
			var refused error
			for j := range providers {
				if refused = set.CheckImageHosts(&providers[j]); refused == nil {
					return nil
				}
			}
			return refused
		})
	}
	slices.SortFunc(results, bySeverity)
	return locations, results
}

// accepted is any file, and explicitly the manifests of OCI images: some registries return them only if asked by name.
const accepted = "*/*, application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, " +
	"application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json"

// askImage requests the head of a file. If the server refuses that, as with signed URLs, it requests the first byte.
func askImage(ctx context.Context, client *http.Client, location, what string) Result {
	result := Result{Check: what, Level: Fail, Message: properties.PublicURL(location)}
	result.Remedy = "make it readable for this machine, and for Ironic and the servers, which must reach it too"
	var status int
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		request, err := http.NewRequestWithContext(ctx, method, location, nil)
		if err == nil {
			request.Header.Set("Accept", accepted)
		}
		if err == nil && method == http.MethodGet {
			request.Header.Set("Range", "bytes=0-0")
		}
		var response *http.Response
		if err == nil {
			response, err = client.Do(request)
		}
		if err != nil {
			result.Message += ": " + cause(err)
			return result
		}
		_ = response.Body.Close() // the rest is not read
		status = response.StatusCode
		kind := response.Header.Get("Content-Type")
		if status == http.StatusOK && strings.Contains(location, "/manifests/sha256:") &&
			(strings.HasPrefix(kind, "application/vnd.oci.image.index.") ||
				strings.HasPrefix(kind, "application/vnd.docker.distribution.manifest.list.")) {
			result.Message += " is the digest of an index of several images, where Ironic takes a digest for that of one image"
			result.Remedy = "name the index by its tag, or one of its images by its digest"
			return result
		}
		if status == http.StatusOK || status == http.StatusPartialContent {
			result.Level, result.Remedy = OK, ""
			result.Message += " can be read from here"
			return result
		}
		if status == http.StatusUnauthorized && strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Bearer ") {
			result.Level, result.Remedy = Skip, ""
			result.Message += ": the registry wants a token, and is not asked further"
			return result
		}
		if status != http.StatusForbidden && status != http.StatusMethodNotAllowed && status != http.StatusNotImplemented {
			break
		}
	}
	result.Message += fmt.Sprintf(": status %d", status)
	return result
}

// maxRedirects is how many redirects are followed.
const maxRedirects = 5

// NewImageClient returns the client that requests images.
func NewImageClient(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, CheckRedirect: withoutReferer}
}

// withoutReferer follows redirects, but does not reveal the previous URL, which may be signed, to their targets.
func withoutReferer(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errors.New("too many redirects")
	}
	request.Header.Del("Referer")
	return nil
}
