// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"encoding/hex"
	"net/url"
	"path"
	"strings"

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
