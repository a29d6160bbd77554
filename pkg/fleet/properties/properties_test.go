// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	location = "https://images.example.com/ubuntu.qcow2"
	oci      = "oci://registry.example.com/images/ubuntu"
	md5      = "d41d8cd98f00b204e9800998ecf8427e"
)

var (
	sha256 = strings.Repeat("ab", 32)
	digest = "@sha256:" + sha256
	sha512 = strings.Repeat("cd", 64)
)

func osImage(values map[string]string) *v1alpha1.OSImage {
	return &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "ubuntu"}, Spec: v1alpha1.OSImageSpec{Properties: values}}
}

func TestMerge(t *testing.T) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "tenant", Name: name} }
	provider := &v1alpha1.NodeProvider{ObjectMeta: named("fleet"), Spec: v1alpha1.NodeProviderSpec{
		Properties: map[string]string{"a": "provider", "b": "provider", "c": "provider", "d": "provider", "gone": "provider"}}}
	nodeType := &v1alpha1.NodeType{ObjectMeta: named("h100")}
	nodeType.Spec.Properties = map[string]string{"b": "type", "c": "type", "d": "type", "gone": ""}
	class := &v1alpha1.MetalNodeClass{ObjectMeta: named("gpu"),
		Spec: v1alpha1.MetalNodeClassSpec{Properties: map[string]string{"c": "class", "d": "class"}}}
	machine := &v1alpha1.Machine{ObjectMeta: named("m"), Spec: v1alpha1.MachineSpec{Properties: map[string]string{"d": "machine"}}}

	set := Merge(OfProvider(provider), OfType(nodeType), OfClass(class), OfMachine(machine))
	want := map[string]string{"a": "provider", "b": "type", "c": "class", "d": "machine"}
	if diff := cmp.Diff(want, set.Map()); diff != "" {
		t.Errorf("the more specific wins, and an empty value takes one away (-want +got):\n%s", diff)
	}
	sources := map[string]string{}
	for key := range want {
		sources[key] = set.Source(key)
	}
	if diff := cmp.Diff(map[string]string{"a": "NodeProvider fleet", "b": "NodeType h100", "c": "MetalNodeClass gpu", "d": "Machine tenant/m"},
		sources); diff != "" {
		t.Errorf("every value knows where it came from (-want +got):\n%s", diff)
	}
}

func TestWithOSImage(t *testing.T) {
	image := osImage(map[string]string{
		v1alpha1.PropertyImageURL: location, v1alpha1.PropertyImageChecksum: sha256, v1alpha1.PropertyImageChecksumType: "sha256",
		"gpu-driver": "570"})
	for name, tc := range map[string]struct {
		reason    string
		own, want map[string]string
	}{
		"Lacking": {
			reason: "everything the set lacks comes from the OSImage",
			own:    map[string]string{v1alpha1.PropertyOSImage: "ubuntu"},
			want: map[string]string{v1alpha1.PropertyOSImage: "ubuntu", v1alpha1.PropertyImageURL: location,
				v1alpha1.PropertyImageChecksum: sha256, v1alpha1.PropertyImageChecksumType: "sha256", "gpu-driver": "570"},
		},
		"OwnValueWins": {
			reason: "an OSImage fills in and overrides nothing",
			own:    map[string]string{"gpu-driver": "580"},
			want: map[string]string{v1alpha1.PropertyImageURL: location,
				v1alpha1.PropertyImageChecksum: sha256, v1alpha1.PropertyImageChecksumType: "sha256", "gpu-driver": "580"},
		},
		"OwnURL": {
			reason: "the checksum of another image would make every installation fail, after twenty minutes",
			own:    map[string]string{v1alpha1.PropertyImageURL: "http://mine/x.raw"},
			want:   map[string]string{v1alpha1.PropertyImageURL: "http://mine/x.raw", "gpu-driver": "570"},
		},
		"OwnChecksum": {
			reason: "the type goes with the checksum",
			own:    map[string]string{v1alpha1.PropertyImageChecksum: md5},
			want:   map[string]string{v1alpha1.PropertyImageURL: location, v1alpha1.PropertyImageChecksum: md5, "gpu-driver": "570"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Merge(Layer{Source: "Machine m", Values: tc.own}).WithOSImage(image).Map()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWithOSImageOfLayers: of an image and a reference to an OSImage, the more specific is installed.
func TestWithOSImageOfLayers(t *testing.T) {
	image := map[string]string{v1alpha1.PropertyImageURL: location, v1alpha1.PropertyImageChecksum: sha256}
	reference := map[string]string{v1alpha1.PropertyOSImage: "ubuntu"}
	own := map[string]string{v1alpha1.PropertyImageURL: "http://mine/x.raw", v1alpha1.PropertyImageChecksum: md5}
	checksum := map[string]string{v1alpha1.PropertyImageChecksum: md5}
	for name, tc := range map[string]struct {
		reason        string
		general       map[string]string
		specific      map[string]string
		image         map[string]string
		url, checksum string
	}{
		"Reference": {reason: "the default image of the provider is not what the pool names", general: own, specific: reference,
			image: image, url: location, checksum: sha256},
		"Image": {reason: "the pool has an image of its own", general: reference, specific: own,
			image: image, url: "http://mine/x.raw", checksum: md5},
		"Checksum": {reason: "the provider's checksum is that of another image", general: checksum, specific: reference,
			image: image, url: location, checksum: sha256},
		"NoImage": {reason: "an OSImage without an image replaces none", general: own, specific: reference,
			image: map[string]string{"gpu-driver": "570"}, url: "http://mine/x.raw", checksum: md5},
	} {
		t.Run(name, func(t *testing.T) {
			set := Merge(Layer{Source: "NodeProvider p", Values: tc.general}, Layer{Source: "Machine m", Values: tc.specific}).
				WithOSImage(osImage(tc.image))
			got := []string{set.Get(v1alpha1.PropertyImageURL), set.Get(v1alpha1.PropertyImageChecksum)}
			if diff := cmp.Diff([]string{tc.url, tc.checksum}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestImage(t *testing.T) {
	for name, tc := range map[string]struct {
		reason              string
		url, checksum, kind string
		want                Image
		problem             string
	}{
		"SHA256": {reason: "the type is found out from the length", url: location, checksum: sha256,
			want: Image{location, sha256, "sha256", "qcow2"}},
		"SHA512": {reason: "the type is found out from the length", url: location, checksum: sha512,
			want: Image{location, sha512, "sha512", "qcow2"}},
		"MD5": {reason: "the type may be said too", url: location, checksum: md5, kind: "md5",
			want: Image{location, md5, "md5", "qcow2"}},
		"ChecksumURL": {reason: "the type of a file of checksums is not known", url: location, checksum: location + ".sum",
			want: Image{location, location + ".sum", "", "qcow2"}},
		"ChecksumURLOf": {reason: "unless it is said", url: location, checksum: location + ".sum", kind: "sha512",
			want: Image{location, location + ".sum", "sha512", "qcow2"}},
		"LiveISO": {reason: "a live ISO is not installed, so not checked", url: "http://x/live.ISO",
			want: Image{"http://x/live.ISO", "", "", "live-iso"}},
		"UnknownFormat": {reason: "Metal3 finds the format out by itself", url: "http://x/image", checksum: md5,
			want: Image{"http://x/image", md5, "md5", ""}},
		"OCI":     {reason: "the digest is the checksum", url: oci + digest, want: Image{URL: oci + digest}},
		"OCIPort": {reason: "a port is no tag", url: "oci://r:5000/os" + digest, want: Image{URL: "oci://r:5000/os" + digest}},
		"OCITag": {reason: "Ironic asks the registry for a token of the repository os:24.04, which there is not",
			url: "oci://r:5000/os:24.04" + digest,
			problem: `property karpenter.metal3.io/image-url of Machine m ("oci://r:5000/os:24.04` + digest + `") names a tag and a digest, and ` +
				`Ironic takes the tag for a part of the repository's name: write the digest without the tag: oci://r:5000/os` + digest},
		"OCIWithoutDigest": {reason: "another server would get another image", url: oci + ":24.04",
			problem: `property karpenter.metal3.io/image-url of Machine m ("oci://registry.example.com/images/ubuntu:24.04") names no digest, and ` +
				`what a tag stands for changes: write the digest of the manifest behind the name: oci://registry.example.com/images/ubuntu@sha256: ` +
				`and 64 hexadecimal digits`},
		"OCIChecksum": {reason: "one of the two is meant for another image", url: oci + digest, checksum: md5,
			problem: `property karpenter.metal3.io/image-checksum of Machine m ("` + md5 + `") goes with no OCI image: the digest is in its URL: ` +
				`leave it out`},
		"NoURL": {reason: "names the way to an image", problem: `property karpenter.metal3.io/image-url is not set: name an OSImage ` +
			`with karpenter.metal3.io/os-image, or set it to the URL of a disk image`},
		"FTP": {reason: "names property, object, value and remedy", url: "ftp://x/y",
			problem: `property karpenter.metal3.io/image-url of Machine m ("ftp://x/y") is not an http, https or oci URL: set it to one, for ` +
				`example https://images.example.com/ubuntu.qcow2`},
		"NoHost": {reason: "a scheme alone is no URL", url: "https://",
			problem: `property karpenter.metal3.io/image-url of Machine m ("https://") is not an http, https or oci URL: set it to one, for ` +
				`example https://images.example.com/ubuntu.qcow2`},
		"NoChecksum": {reason: "Metal3 would refuse it later", url: location,
			problem: `property karpenter.metal3.io/image-checksum is not set, and Metal3 installs no disk image without one: set it to the ` +
				`checksum of https://images.example.com/ubuntu.qcow2 or to the URL of a file that holds it`},
		"ChecksumLength": {reason: "a digit is missing", url: location, checksum: md5[1:],
			problem: `property karpenter.metal3.io/image-checksum of Machine m ("41d8cd98f00b204e9800998ecf8427e") is neither a checksum nor an ` +
				`http or https URL: set it to the 32 (md5), 64 (sha256) or 128 (sha512) hexadecimal digits, or to the URL of a file that holds them`},
		"ChecksumDigits": {reason: "the length is right, the digits are not", url: location, checksum: "x" + md5[1:],
			problem: `property karpenter.metal3.io/image-checksum of Machine m ("x41d8cd98f00b204e9800998ecf8427e") is neither a checksum nor an ` +
				`http or https URL: set it to the 32 (md5), 64 (sha256) or 128 (sha512) hexadecimal digits, or to the URL of a file that holds them`},
		"TypeUnknown": {reason: "names the types there are", url: location, checksum: md5, kind: "crc32",
			problem: `property karpenter.metal3.io/image-checksum-type of Machine m ("crc32") is not a type of checksum: set it to md5, sha256 or ` +
				`sha512, or leave it out`},
		"TypeMismatch": {reason: "one of the two is a typo", url: location, checksum: md5, kind: "sha256",
			problem: `property karpenter.metal3.io/image-checksum-type of Machine m ("sha256") does not go with ` +
				`karpenter.metal3.io/image-checksum, which has the length of md5: set it to md5 or leave it out`},
	} {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{}
			for key, value := range map[string]string{v1alpha1.PropertyImageURL: tc.url, v1alpha1.PropertyImageChecksum: tc.checksum,
				v1alpha1.PropertyImageChecksumType: tc.kind} {
				if value != "" {
					values[key] = value
				}
			}
			got, err := Merge(Layer{Source: "Machine m", Values: values}).Image()
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			if diff := cmp.Diff(tc.problem, problem); diff != "" {
				t.Errorf("%s: error (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: image (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	set := Merge(Layer{Source: "Machine m",
		Values: map[string]string{v1alpha1.PropertyServerName: "Server_1", v1alpha1.PropertyOSImage: "ubuntu-22.04"}})
	if name, err := set.OSImage(); name != "ubuntu-22.04" || err != nil {
		t.Errorf("OSImage: got %q, %v", name, err)
	}
	if name, err := (Set{}).ServerName(); name != "" || err != nil {
		t.Errorf("a Machine that is not pinned is no error: got %q, %v", name, err)
	}
	_, err := set.ServerName()
	if err == nil || !strings.HasPrefix(err.Error(), `property karpenter.metal3.io/server-name of Machine m ("Server_1") cannot be the name `+
		`of a BareMetalHost`) {
		t.Errorf("a name that no host can have: got %v", err)
	}
}
