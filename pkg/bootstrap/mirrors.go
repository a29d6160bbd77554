// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	_ "embed"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// MirrorsScriptName is the file name of the script that makes a server use mirrors. By its name it runs first.
const MirrorsScriptName = "00-karpenter-metal3-mirrors"

//go:embed use-mirrors.sh
var useMirrorsScript string

const (
	useMirrorsPath = "/var/lib/karpenter-metal3/use-mirrors.sh"
	// mirrorsSedPath replaces upstreams in the configuration of package managers. prepare-node.sh reads it too.
	mirrorsSedPath = "/var/lib/karpenter-metal3/mirrors.sed"
	mirrorsCAPath  = "/var/lib/karpenter-metal3/mirrors-ca.crt"
	// registriesPath is where containerd looks for the mirrors of a registry.
	registriesPath = "/etc/containerd/certs.d"

	kubernetesPackages = "pkgs.k8s.io"
	// otherRegistries is containerd's name for the registries that have no directory of their own.
	otherRegistries = "_default"
)

// None of these allows a character with a meaning in a shell, in TOML or in a replacement of sed.
var (
	upstreamPackages = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~:%+@-]+)*$`)
	upstreamRegistry = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?$`)
	mirrorURL        = regexp.MustCompile(`^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~:%+@-]+)*/?$`)
)

// CheckMirrors returns what is wrong with mirrors, which may be nil.
func CheckMirrors(path *field.Path, mirrors *v1alpha1.Mirrors) (wrong field.ErrorList) {
	if mirrors == nil {
		return nil
	}
	for i, mirror := range mirrors.Packages {
		entry := path.Child("packages").Index(i)
		if !upstreamPackages.MatchString(mirror.Upstream) {
			wrong = append(wrong, field.Invalid(entry.Child("upstream"), mirror.Upstream,
				"is not the beginning of the URLs of a repository: write it without https://, such as deb.debian.org/debian or "+
					kubernetesPackages))
		}
		wrong = append(wrong, checkMirrorURL(entry.Child("url"), mirror.URL)...)
		if isKubernetes(mirror.Upstream) && strings.HasPrefix(mirror.URL, "http://") {
			wrong = append(wrong, field.Invalid(entry.Child("url"), mirror.URL, "is not https, and servers fetch the key from there by which "+
				"they verify the packages: serve the mirror with https"))
		}
	}
	for i, mirror := range mirrors.Images {
		entry := path.Child("images").Index(i)
		if mirror.Upstream != otherRegistries && !upstreamRegistry.MatchString(mirror.Upstream) {
			wrong = append(wrong, field.Invalid(entry.Child("upstream"), mirror.Upstream,
				"is not a registry: write it as in references of images, such as registry.k8s.io or registry.example.com:5000, or "+
					otherRegistries+" for all that are not listed"))
		}
		wrong = append(wrong, checkMirrorURL(entry.Child("url"), mirror.URL)...)
	}
	if _, err := certutil.ParseCertsPEM([]byte(mirrors.CABundle)); mirrors.CABundle != "" && err != nil {
		wrong = append(wrong, field.Invalid(path.Child("caBundle"), field.OmitValueType{},
			"has no certificates in PEM: write them with their lines -----BEGIN CERTIFICATE----- and -----END CERTIFICATE-----"))
	}
	return wrong
}

func isKubernetes(upstream string) bool {
	host, _, _ := strings.Cut(upstream, "/")
	return host == kubernetesPackages
}

func checkMirrorURL(path *field.Path, value string) field.ErrorList {
	if parsed, err := url.Parse(value); err == nil && parsed.User != nil {
		return field.ErrorList{field.Invalid(path, parsed.Redacted(), "has a user, whom all who see the NodeProvider would know: "+
			"serve the mirror without a login")}
	} else if err != nil || !mirrorURL.MatchString(value) {
		return field.ErrorList{field.Invalid(path, value, "is not the URL of a mirror: write it with https or http, and without a query, "+
			"such as https://mirror.example.com/debian")}
	}
	return nil
}

// mirrorsScriptOf returns the script that makes a server use mirrors, nil for none. Equal mirrors give equal bytes.
func mirrorsScriptOf(mirrors *v1alpha1.Mirrors) ([]byte, error) {
	if wrong := CheckMirrors(field.NewPath("spec", "mirrors"), mirrors); len(wrong) > 0 {
		return nil, wrong.ToAggregate()
	}
	if mirrors == nil || len(mirrors.Packages) == 0 && len(mirrors.Images) == 0 && mirrors.CABundle == "" {
		return nil, nil
	}
	script := bootScript{commands: []string{"sh " + inRoot(useMirrorsPath)}, files: []bootFile{{useMirrorsPath, "0755", useMirrorsScript}}}
	if len(mirrors.Packages) > 0 {
		script.files = append(script.files, bootFile{mirrorsSedPath, "0644", packagesSed(mirrors.Packages)})
	}
	if mirrors.CABundle != "" {
		// A bundle can have any text between its certificates. The script gets only the certificates.
		certificates, err := certutil.ParseCertsPEM([]byte(mirrors.CABundle))
		if err != nil {
			return nil, err
		}
		bundle, err := certutil.EncodeCertificates(certificates...)
		if err != nil {
			return nil, err
		}
		script.files = append(script.files, bootFile{mirrorsCAPath, "0644", string(bundle)})
	}
	for _, mirror := range mirrors.Images {
		script.files = append(script.files, bootFile{path.Join(registriesPath, mirror.Upstream, "hosts.toml"), "0644",
			hostsTOML(mirror.URL, mirrors.CABundle != "")})
	}
	return []byte(script.text("Has this server use mirrors.")), nil
}

// packagesSed returns a script of sed, for extended regular expressions. Repositories of RPM have the URL of the
// upstream in a comment, under the address of a list of mirrors.
func packagesSed(mirrors []v1alpha1.Mirror) string {
	var script strings.Builder
	for _, mirror := range mirrors {
		upstream, replacement := `https?://`+regexp.QuoteMeta(mirror.Upstream)+`(/|[[:space:]]|$)`, strings.TrimRight(mirror.URL, "/")
		fmt.Fprintf(&script, "s,^# *(baseurl=%s),\\1,\ns,%s,%s\\1,g\n", upstream, upstream, replacement)
	}
	return script.String()
}

// hostsTOML returns containerd's file for a registry's mirror. If that does not answer, containerd asks the registry.
func hostsTOML(mirror string, authority bool) string {
	mirror = strings.TrimRight(mirror, "/")
	text := fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", mirror)
	if authority {
		text += fmt.Sprintf("  ca = %q\n", mirrorsCAPath)
	}
	if _, address, _ := strings.Cut(mirror, "://"); strings.Contains(address, "/") {
		text += "  override_path = true\n" // containerd would append /v2
	}
	return text
}
