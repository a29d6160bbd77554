// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// LiveISO is the format of images that are booted and not installed. They need no checksum.
const LiveISO = "live-iso"

// Image is a disk image to install.
type Image struct {
	// URL with the scheme http or https.
	URL string
	// Checksum in hexadecimal, or the http or https URL of a file that holds it. Empty only for a live ISO.
	Checksum string
	// ChecksumType is md5, sha256 or sha512; empty if the checksum is a URL and no type is given.
	ChecksumType string
	// Format as Metal3 calls it (qcow2, raw, vdi, vmdk, live-iso), from the ending of the URL; empty if that says nothing.
	Format string
}

// checksumTypes by the length of the checksum in hexadecimal digits.
var checksumTypes = map[int]string{32: "md5", 64: "sha256", 128: "sha512"}

// formats by the ending of the file name.
var formats = map[string]string{".qcow2": "qcow2", ".raw": "raw", ".vdi": "vdi", ".vmdk": "vmdk", ".iso": LiveISO}

// Image returns the disk image to install. What the OSImage has must be filled in already. The error is an *Error.
func (s Set) Image() (Image, error) {
	location := s.Get(v1alpha1.PropertyImageURL)
	if location == "" {
		return Image{}, s.wrong(v1alpha1.PropertyImageURL, "is not set", "name an OSImage with "+v1alpha1.PropertyOSImage+
			", or set it to the URL of a disk image")
	}
	parsed, err := s.parsedImageURL()
	if err != nil {
		return Image{}, err
	}
	image := Image{URL: location, Format: formats[strings.ToLower(path.Ext(parsed.Path))]}
	if image.Checksum, image.ChecksumType, err = s.checksum(); err != nil {
		return Image{}, err
	}
	if image.Checksum == "" && image.Format != LiveISO {
		return Image{}, s.wrong(v1alpha1.PropertyImageChecksum, "is not set, and Metal3 installs no disk image without one",
			"set it to the checksum of "+PublicURL(location)+" or to the URL of a file that holds it")
	}
	return image, nil
}

func (s Set) parsedImageURL() (*url.URL, error) {
	parsed, ok := parseURL(s.Get(v1alpha1.PropertyImageURL))
	if !ok {
		return nil, s.wrong(v1alpha1.PropertyImageURL, "is not an http or https URL",
			"set it to one, for example https://images.example.com/ubuntu.qcow2")
	}
	return parsed, nil
}

func (s Set) checksum() (checksum, kind string, err error) {
	checksum, kind = s.Get(v1alpha1.PropertyImageChecksum), s.Get(v1alpha1.PropertyImageChecksumType)
	switch kind {
	case "", "md5", "sha256", "sha512":
	default:
		return "", "", s.wrong(v1alpha1.PropertyImageChecksumType, "is not a type of checksum",
			"set it to md5, sha256 or sha512, or leave it out")
	}
	if checksum == "" {
		return "", "", nil
	}
	if _, ok := parseURL(checksum); ok {
		return checksum, kind, nil
	}
	found, known := checksumTypes[len(checksum)]
	if _, notHex := hex.DecodeString(checksum); notHex != nil || !known {
		return "", "", s.wrong(v1alpha1.PropertyImageChecksum, "is neither a checksum nor an http or https URL",
			"set it to the 32 (md5), 64 (sha256) or 128 (sha512) hexadecimal digits, or to the URL of a file that holds them")
	}
	if kind != "" && kind != found {
		return "", "", s.wrong(v1alpha1.PropertyImageChecksumType, "does not go with "+v1alpha1.PropertyImageChecksum+
			", which has the length of "+found,
			"set it to "+found+" or leave it out")
	}
	return checksum, found, nil
}

func parseURL(text string) (*url.URL, bool) {
	parsed, err := url.Parse(text)
	return parsed, err == nil && parsed.Host != "" && (parsed.Scheme == "http" || parsed.Scheme == "https")
}

// OSImage returns the name of the OSImage to install, empty if none is named. The error is an *Error.
func (s Set) OSImage() (string, error) {
	return s.objectName(v1alpha1.PropertyOSImage, "an OSImage")
}

// ServerName returns the name of the BareMetalHost that the Machine is pinned to, empty if it is not pinned. The error
// is an *Error.
func (s Set) ServerName() (string, error) {
	return s.objectName(v1alpha1.PropertyServerName, "a BareMetalHost")
}

func (s Set) objectName(key, kind string) (string, error) {
	name := s.Get(key)
	if name == "" {
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", s.wrong(key, "cannot be the name of "+kind+" ("+strings.Join(problems, ", ")+")", "set it to the name of "+kind+" that exists")
	}
	return name, nil
}

// UserData returns the document for cloud-init, empty if there is none or if a template that is
// written in a more specific object takes its place. It is not checked.
func (s Set) UserData() string {
	return s.unlessOverridden(v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate)
}

// NetworkData returns the whole network data, empty if it is to be made from the network or from a template that is
// written in a more specific object. Whether it is network data is not looked at.
func (s Set) NetworkData() string {
	return s.unlessOverridden(v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate)
}

// UserDataTemplate returns the name of the MachineConfigTemplate that makes the document for cloud-init, empty if none
// does: none is named, or UserData is not empty. The error is an *Error.
func (s Set) UserDataTemplate() (string, error) {
	return s.template(v1alpha1.PropertyUserDataTemplate, s.UserData())
}

// NetworkDataTemplate returns the name of the MachineConfigTemplate that makes the network data, empty if none does:
// none is named, or NetworkData is not empty. The error is an *Error.
func (s Set) NetworkDataTemplate() (string, error) {
	return s.template(v1alpha1.PropertyNetworkDataTemplate, s.NetworkData())
}

func (s Set) template(key, instead string) (string, error) {
	if instead != "" {
		return "", nil
	}
	return s.objectName(key, "a MachineConfigTemplate")
}

// unlessOverridden returns the document, unless a template is named in a more specific object: a Machine that names a
// template wants that, whatever document its NodeProvider has for all. In one and the same object the document wins.
func (s Set) unlessOverridden(document, template string) string {
	if s.Get(template) != "" && s.properties[template].rank > s.properties[document].rank {
		return ""
	}
	return s.Get(document)
}

// SSHKeys returns the names of the SSHKeys whose owners may log in, each once, in the order they are written in. The
// error is an *Error.
func (s Set) SSHKeys() ([]string, error) {
	if err := s.tooMany(v1alpha1.PropertySSHKeys, "names of SSHKeys"); err != nil {
		return nil, err
	}
	var names []string
	for _, name := range s.list(v1alpha1.PropertySSHKeys) {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, s.wrong(v1alpha1.PropertySSHKeys,
				fmt.Sprintf("holds %q, which cannot be the name of an SSHKey (%s)", name, strings.Join(problems, ", ")),
				"set it to the names of SSHKeys that exist, separated by commas")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// maxListed is how many values a list may have. Some are compared each with each.
const maxListed = 1000

// tooMany finds a list that is too long. The error is an *Error.
func (s Set) tooMany(key, what string) error {
	if count := strings.Count(s.Get(key), ",") + 1; count > maxListed {
		return s.wrong(key, fmt.Sprintf("holds %d %s, and %d are the most", count, what, maxListed), "write fewer of them")
	}
	return nil
}

// list returns the comma-separated parts of a value, without the spaces around them; nil if the property is not set.
func (s Set) list(key string) []string { return splitList(s.Get(key)) }

func splitList(value string) []string {
	if value == "" {
		return nil
	}
	parts := strings.Split(value, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
