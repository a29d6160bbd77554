// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// LiveISO is the format of images that are booted and not installed. They need no checksum.
const LiveISO = "live-iso"

// Image is a disk image to install.
type Image struct {
	// URL with the scheme http or https, or oci with a digest (oci://registry.example.com/images/ubuntu@sha256:...).
	URL string
	// Checksum in hexadecimal, or the http or https URL of a file that holds it. It is empty only for a live ISO and
	// for an OCI image, which has its digest in the URL.
	Checksum string
	// ChecksumType is md5, sha256 or sha512; empty if the checksum is a URL and no type is given.
	ChecksumType string
	// Format in Metal3's terms (qcow2, raw, vdi, vmdk, live-iso), from the ending of the URL; empty if unknown.
	Format string
}

// checksumTypes by the length of the checksum in hexadecimal digits.
var checksumTypes = map[int]string{32: "md5", 64: "sha256", 128: "sha512"}

// formats by the ending of the file name.
var formats = map[string]string{".qcow2": "qcow2", ".raw": "raw", ".vdi": "vdi", ".vmdk": "vmdk", ".iso": LiveISO}

// Image returns the disk image to install. Call it on a set that WithOSImage has completed. The error is an *Error.
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
	if parsed.Scheme == schemeOCI {
		if image.Checksum != "" {
			return Image{}, s.wrong(v1alpha1.PropertyImageChecksum, "goes with no OCI image: the digest is in its URL", "leave it out")
		}
		return image, nil
	}
	if image.Checksum == "" && image.Format != LiveISO {
		return Image{}, s.wrong(v1alpha1.PropertyImageChecksum, "is not set, and Metal3 installs no disk image without one",
			"set it to the checksum of "+PublicURL(location)+" or to the URL of a file that holds it")
	}
	return image, nil
}

func (s Set) parsedImageURL() (*url.URL, error) {
	location := s.Get(v1alpha1.PropertyImageURL)
	parsed, ok := parseURL(location, "http", "https", schemeOCI)
	if !ok {
		return nil, s.wrong(v1alpha1.PropertyImageURL, "is not an http, https or oci URL",
			"set it to one, for example https://images.example.com/ubuntu.qcow2")
	}
	if name, digest, found := strings.Cut(parsed.Path, "@"); parsed.Scheme == schemeOCI && found && strings.Contains(name, ":") {
		name, _, _ = strings.Cut(name, ":")
		return nil, s.wrong(v1alpha1.PropertyImageURL, "names a tag and a digest, and Ironic takes the tag for a part of the repository's name",
			"write the digest without the tag: oci://"+parsed.Host+name+"@"+digest)
	}
	if parsed.Scheme == schemeOCI && Manifest(location) == "" {
		return nil, s.wrong(v1alpha1.PropertyImageURL, "names no digest, and what a tag stands for changes",
			"write the digest of the manifest behind the name: oci://registry.example.com/images/ubuntu@sha256: and 64 hexadecimal digits")
	}
	return parsed, nil
}

// schemeOCI is the URL scheme of images in a registry, in Metal3's notation.
const schemeOCI = "oci"

// repository matches the path of an OCI image: the name and the digest.
var repository = regexp.MustCompile(`^/([a-z0-9][a-z0-9._/-]*)@(sha256:[0-9a-f]{64})$`)

// Manifest returns the URL from which a registry serves the manifest of an OCI image, according to the OCI distribution
// specification. It returns "" for other images, and for an OCI image without a digest.
func Manifest(location string) string {
	parsed, ok := parseURL(location, schemeOCI)
	if !ok {
		return ""
	}
	parts := repository.FindStringSubmatch(parsed.Path)
	if parts == nil {
		return ""
	}
	return "https://" + parsed.Host + "/v2/" + parts[1] + "/manifests/" + parts[2]
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
	if _, ok := parseURL(checksum, "http", "https"); ok {
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

func parseURL(text string, schemes ...string) (*url.URL, bool) {
	parsed, err := url.Parse(text)
	return parsed, err == nil && parsed.Host != "" && slices.Contains(schemes, parsed.Scheme)
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

// UserData returns the document for cloud-init. It returns "" if there is none, or if a template from a more specific
// object takes its place. It does not check the document.
func (s Set) UserData() string {
	return s.unlessOverridden(v1alpha1.PropertyUserData, v1alpha1.PropertyUserDataTemplate)
}

// NetworkData returns the whole network data. It returns "" if the network data comes from the network, or from a
// template in a more specific object. It does not check the document.
func (s Set) NetworkData() string {
	return s.unlessOverridden(v1alpha1.PropertyNetworkData, v1alpha1.PropertyNetworkDataTemplate)
}

// unlessOverridden returns the document, unless a more specific object names a template: a Machine that names a
// template wants the template, whatever document its NodeProvider has for all. Within one object the document wins.
func (s Set) unlessOverridden(document, template string) string {
	if s.Get(template) != "" && s.properties[template].rank > s.properties[document].rank {
		return ""
	}
	return s.Get(document)
}

// SSHKeys returns the names of the SSHKeys whose owners may log in, each once, in the order of the property. The error
// is an *Error.
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

// maxListed limits the number of values in a list. Some lists are compared pair by pair.
const maxListed = 1000

// tooMany returns an *Error for a list that is too long.
func (s Set) tooMany(key, what string) error {
	if count := strings.Count(s.Get(key), ",") + 1; count > maxListed {
		return s.wrong(key, fmt.Sprintf("holds %d %s, and %d are the most", count, what, maxListed), "write fewer of them")
	}
	return nil
}

// list splits a value at commas and trims the spaces around the parts; nil if the property is not set.
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

// Network is the network that servers get their addresses from.
type Network struct {
	// CIDR is the network, with its host part zero.
	CIDR netip.Prefix
	// Gateway is the address of the gateway, in the network.
	Gateway netip.Addr
	// Ranges are the addresses that servers may have, in the order of the property, all within the network and without
	// overlap; empty means the whole network. A range may include the gateway and the network's own addresses, but
	// servers do not get them.
	Ranges []netipx.IPRange
	// DNS are the name servers; empty if there are none.
	DNS []netip.Addr
}

// exampleCIDR is an example for remedies in messages.
const exampleCIDR = "192.168.100.1/24"

// Network returns the network, and reports whether one is set. Without it, servers get their addresses from another
// DHCP server. The error is an *Error.
func (s Set) Network() (Network, bool, error) {
	dns, err := s.nameServers()
	if err != nil {
		return Network{}, false, err
	}
	if s.Get(v1alpha1.PropertyNetworkCIDR) == "" {
		if s.Get(v1alpha1.PropertyNetworkIPRange) != "" {
			return Network{}, false, s.wrong(v1alpha1.PropertyNetworkIPRange, "is set without "+v1alpha1.PropertyNetworkCIDR+
				", and a server that does not know the prefix length and the gateway cannot be reached",
				"set "+v1alpha1.PropertyNetworkCIDR+" to the gateway and the prefix length of the network, for example "+exampleCIDR)
		}
		return Network{}, false, nil
	}
	cidr, err := s.cidr()
	if err != nil {
		return Network{}, false, err
	}
	network := Network{CIDR: cidr.Masked(), Gateway: cidr.Addr(), DNS: dns}
	if network.Ranges, err = s.ranges(network); err != nil {
		return Network{}, false, err
	}
	return network, true, nil
}

// cidr returns the gateway and its prefix length.
func (s Set) cidr() (netip.Prefix, error) {
	const key = v1alpha1.PropertyNetworkCIDR
	if strings.Contains(s.Get(key), ",") {
		return netip.Prefix{}, s.wrong(key, "names several networks, and a server gets one address",
			"name one of them, and give the address of the other family by a network data template")
	}
	prefix, err := netip.ParsePrefix(s.Get(key))
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{},
			s.wrong(key, "is not an address and a prefix length", "set it to the gateway and the prefix length of the network, for example "+
				exampleCIDR)
	}
	if hostBits := prefix.Addr().BitLen() - prefix.Bits(); hostBits < 2 || prefix.Bits() == 0 {
		return netip.Prefix{}, s.wrong(key, fmt.Sprintf("has the prefix length %d, which leaves no network with servers in it", prefix.Bits()),
			fmt.Sprintf("choose a prefix length between 1 and %d", prefix.Addr().BitLen()-2))
	}
	switch prefix.Addr() {
	case prefix.Masked().Addr():
		return netip.Prefix{}, s.wrong(key, "names the network and no gateway: its host part, which is the gateway, is zero",
			fmt.Sprintf("set it to the address of the gateway and the prefix length, for example %s/%d", prefix.Addr().Next(), prefix.Bits()))
	case netipx.PrefixLastIP(prefix):
		if prefix.Addr().Is4() {
			return netip.Prefix{},
				s.wrong(key, "has the broadcast address of the network for its gateway", "set it to the address of the gateway and the prefix length")
		}
	}
	return prefix, nil
}

// ranges returns the ranges of addresses. They must be in the network if it is known.
func (s Set) ranges(network Network) ([]netipx.IPRange, error) {
	const key = v1alpha1.PropertyNetworkIPRange
	if err := s.tooMany(key, "ranges"); err != nil {
		return nil, err
	}
	var ranges []netipx.IPRange
	for _, part := range s.list(key) {
		first, last, found := strings.Cut(part, "-")
		if !found {
			last = first
		}
		from, to := parseAddress(first), parseAddress(last)
		switch {
		case !from.IsValid() || from.BitLen() != to.BitLen():
			return nil, s.wrong(key, fmt.Sprintf("holds %q, which is not a range of addresses", part),
				"write ranges as first-last, separated by commas, for example 192.168.100.10-192.168.100.50,192.168.100.60-192.168.100.70")
		case network.CIDR.IsValid() && (!network.CIDR.Contains(from) || !network.CIDR.Contains(to)):
			outside := from
			if network.CIDR.Contains(from) {
				outside = to
			}
			return nil, s.wrong(key, fmt.Sprintf("holds %s, which is outside %s %s", outside, v1alpha1.PropertyNetworkCIDR, network.CIDR),
				"choose addresses of that network, or correct the network")
		case to.Less(from):
			return nil, s.wrong(key, fmt.Sprintf("holds the range %q, which ends before it starts", part),
				fmt.Sprintf("write it as %s-%s", to, from))
		}
		next := netipx.IPRangeFrom(from, to)
		if i := slices.IndexFunc(ranges, next.Overlaps); i >= 0 {
			return nil, s.wrong(key, fmt.Sprintf("holds the ranges %s and %s, which overlap", ranges[i], next), "write every address once")
		}
		ranges = append(ranges, next)
	}
	return ranges, nil
}

func (s Set) nameServers() ([]netip.Addr, error) {
	const key = v1alpha1.PropertyDNSServers
	if err := s.tooMany(key, "name servers"); err != nil {
		return nil, err
	}
	var servers []netip.Addr
	for _, part := range s.list(key) {
		server := parseAddress(part)
		if !server.IsValid() || server.IsUnspecified() || server.IsMulticast() {
			return nil, s.wrong(key, fmt.Sprintf("holds %q, which is not the address of a server", part),
				"write addresses, separated by commas, for example 10.0.0.53,10.0.1.53")
		}
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// NTPServers returns the addresses and host names of the time servers, each once; empty if there are none. The error is an *Error.
func (s Set) NTPServers() ([]string, error) {
	const key = v1alpha1.PropertyNTPServers
	if err := s.tooMany(key, "time servers"); err != nil {
		return nil, err
	}
	var servers []string
	for _, server := range s.list(key) {
		if address := parseAddress(server); !address.IsValid() && !isHostName(server) || address.IsValid() && address.IsUnspecified() {
			return nil, s.wrong(key, fmt.Sprintf("holds %q, which is neither the address nor the host name of a server", server),
				"write addresses or host names, separated by commas, for example 10.0.0.123,ntp.example.com")
		}
		if !slices.Contains(servers, server) {
			servers = append(servers, server)
		}
	}
	return servers, nil
}

// isHostName reports whether a text is a host name, rather than an incomplete address.
func isHostName(text string) bool {
	last := text[strings.LastIndex(text, ".")+1:]
	return len(validation.IsDNS1123Subdomain(strings.ToLower(text))) == 0 && strings.Trim(last, "0123456789") != ""
}

// parseAddress returns an address, or the zero Addr. It accepts neither zones, which have a meaning on one machine
// only, nor IPv4 addresses in IPv6 notation.
func parseAddress(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || address.Zone() != "" || address.Is4In6() {
		return netip.Addr{}
	}
	return address
}
