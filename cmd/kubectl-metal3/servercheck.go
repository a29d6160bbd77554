// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/metal3-io/baremetal-operator/pkg/hardwareutils/bmc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// registration is the host and the Secret that a row asks for.
type registration struct {
	position
	// host is the wanted host. existing is the host in the cluster, or nil.
	host, existing *bmov1alpha1.BareMetalHost
	// username and password go into the Secret that the host names. Both are empty if others manage the Secret.
	username, password string
	// secretVersion is the resource version of the Secret before the write.
	secretVersion string
	// changes are the changes to an existing host, in words. Empty: the host is already as wanted.
	changes []string
	// wrong: the row has a problem.
	wrong bool
}

// checker checks each row alone, against the rows before it, and against the existing hosts.
type checker struct {
	list      *serverList
	namespace string
	existing  map[types.NamespacedName]*bmov1alpha1.BareMetalHost
	// users names the server that has a name, a MAC address or a BMC. The key is the column and the value.
	users map[[2]string]string
}

// check returns what the rows ask for, and adds the problems that it finds to the list.
func (l *serverList) check(namespace string, hosts []bmov1alpha1.BareMetalHost) []*registration {
	c := &checker{list: l, namespace: namespace, existing: map[types.NamespacedName]*bmov1alpha1.BareMetalHost{},
		users: map[[2]string]string{}}
	for i := range hosts {
		host := &hosts[i]
		c.existing[types.NamespacedName{Namespace: host.Namespace, Name: host.Name}] = host
	}
	registrations := make([]*registration, len(l.rows))
	mine := map[types.NamespacedName]bool{}
	for i := range l.rows {
		before := len(l.problems)
		registration := c.registration(&l.rows[i])
		registration.wrong = len(l.problems) > before
		registrations[i] = registration
		mine[types.NamespacedName{Namespace: registration.host.Namespace, Name: registration.host.Name}] = true
	}
	for i := range hosts { // a host in the list is compared with its row
		if host := &hosts[i]; !mine[types.NamespacedName{Namespace: host.Namespace, Name: host.Name}] {
			user := "BareMetalHost " + nameOf(host)
			c.users[[2]string{columnMAC, strings.ToLower(host.Spec.BootMACAddress)}] = user
			c.users[[2]string{columnBMC, endpoint(host.Spec.BMC.Address)}] = user
		}
	}
	for i, registration := range registrations {
		r, before := &l.rows[i], len(l.problems)
		user := fmt.Sprintf("the server in line %d", r.line)
		c.unique(r.cell(columnName), columnName, nameOf(registration.host), registration.host.Name, user)
		c.unique(r.cell(columnMAC), columnMAC, strings.ToLower(registration.host.Spec.BootMACAddress),
			registration.host.Spec.BootMACAddress, user)
		c.unique(r.cell(columnBMC), columnBMC, endpoint(registration.host.Spec.BMC.Address),
			properties.PublicURL(registration.host.Spec.BMC.Address), user)
		c.compare(r, registration)
		registration.wrong = registration.wrong || len(l.problems) > before
	}
	return registrations
}

// unique reports a problem if another server has the value.
func (c *checker) unique(cell cell, column, value, shown, user string) {
	if cell.value == "" {
		return
	}
	key := [2]string{column, value}
	if other, taken := c.users[key]; taken {
		c.list.wrong(cell.position, "%s is %q, which %s has: each server has its own", column, shown, other)
		return
	}
	c.users[key] = user
}

// endpoint returns the part of an address that identifies a BMC and the system behind it.
func endpoint(address string) string {
	parsed, err := bmc.GetParsedURL(address)
	if err != nil {
		return address
	}
	return strings.ToLower(parsed.Host) + strings.TrimSuffix(parsed.Path, "/")
}

func (c *checker) registration(r *row) *registration {
	registration := &registration{position: r.position, host: &bmov1alpha1.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: bmov1alpha1.GroupVersion.String(), Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: r.cell(columnName).value, Labels: c.labels(r)},
	}}
	c.names(r, registration)
	c.credentials(r, registration)
	address := r.cell(columnBMC)
	registration.host.Spec.BMC.Address = address.value
	switch unverified := r.cell(columnUnverified); unverified.value {
	case "", "false":
	case "true":
		registration.host.Spec.BMC.DisableCertificateVerification = true
	default:
		c.list.wrong(unverified.position, "%s is %q: write %s", columnUnverified, unverified.value, trueOrFalse)
	}
	c.rootDevice(r, registration)
	mac := r.cell(columnMAC)
	if mac.value != "" && !macPattern.MatchString(mac.value) {
		c.list.wrong(mac.position, "mac is %q: write six pairs of hexadecimal digits with colons, as 52:54:00:12:34:01", mac.value)
	}
	registration.host.Spec.BootMACAddress = mac.value
	access := c.access(address)
	if access != nil && access.NeedsMAC() && mac.value == "" {
		c.list.wrong(mac.position, "mac is missing, and Metal3 needs that of the card which the server boots from for %s: write it",
			access.Type())
	}
	mode := r.cell(columnBootMode)
	registration.host.Spec.BootMode = bmov1alpha1.BootMode(mode.value)
	switch registration.host.Spec.BootMode {
	case "", bmov1alpha1.UEFI, bmov1alpha1.Legacy:
	case bmov1alpha1.UEFISecureBoot:
		if access != nil && !access.SupportsSecureBoot() {
			c.list.wrong(mode.position, "bootMode is %q, which Metal3 cannot set by %s: write a Redfish address into bmc, or another bootMode",
				mode.value, access.Type())
		}
	default:
		c.list.wrong(mode.position, "bootMode is %q: write UEFI, UEFISecureBoot, legacy or nothing", mode.value)
	}
	return registration
}

func (c *checker) rootDevice(r *row, registration *registration) {
	hints := &bmov1alpha1.RootDeviceHints{}
	for _, hint := range hintsOf(hints) {
		cell := r.cell(hint.column)
		if cell.value == "" {
			continue
		}
		registration.host.Spec.RootDeviceHints = hints
		if instead := hint.set(cell.value); instead != "" {
			c.list.wrong(cell.position, "%s is %q: write %s", hint.column, cell.value, instead)
		}
	}
}

// macPattern is the pattern of spec.bootMACAddress.
var macPattern = regexp.MustCompile(`^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$`)

// access parses the address of a BMC as Metal3 does; nil if it is wrong. The problem that it reports has no
// credentials.
func (c *checker) access(address cell) bmc.AccessDetails {
	if address.value == "" {
		c.list.wrong(address.position, "bmc is missing: write the address of the server's BMC, as redfish-virtualmedia://192.0.2.11/redfish/v1/"+
			"Systems/1")
		return nil
	}
	if parsed, err := url.Parse(address.value); strings.Contains(address.value, "@") || err == nil && parsed.User != nil {
		c.list.wrong(address.position, "bmc has credentials in it: leave them out, and use the columns username and password")
		return nil
	}
	shown := properties.PublicURL(address.value)
	access, err := bmc.NewAccessDetails(address.value, false)
	var unknown *bmc.UnknownBMCTypeError
	switch {
	case errors.As(err, &unknown):
		c.list.wrong(address.position, "bmc is %q, whose scheme Metal3 does not know: write one as redfish://, redfish-virtualmedia://, "+
			"idrac-virtualmedia:// or ipmi://", shown)
		return nil
	case err != nil:
		c.list.wrong(address.position, "bmc is %q, which Metal3 cannot read: write an address as redfish://192.0.2.11/redfish/v1/Systems/1",
			shown)
		return nil
	}
	return access
}

func (c *checker) names(r *row, registration *registration) {
	name := r.cell(columnName)
	_, noUUID := uuid.Parse(name.value)
	switch problems := validation.IsDNS1123Subdomain(name.value); {
	case name.value == "":
		c.list.wrong(name.position, "name is missing: write the name of the BareMetalHost")
	case len(problems) > 0:
		c.list.wrong(name.position, "name is %q: %s", name.value, properties.Because(problems))
	case len(validation.IsDNS1123Subdomain(name.value+credentialsSuffix)) > 0:
		c.list.wrong(name.position, "name is %q: it must be shorter, since a Secret is called like it", name.value)
	case noUUID == nil:
		c.list.wrong(name.position, "name is %q, a UUID, which Metal3 refuses: write another name", name.value)
	}
	if namespace := r.cell(columnNamespace); namespace.value != "" {
		registration.host.Namespace = namespace.value
		if problems := validation.IsDNS1123Label(namespace.value); len(problems) > 0 {
			c.list.wrong(namespace.position, "namespace is %q: %s", namespace.value, properties.Because(problems))
		}
	}
}

// credentialsSuffix is appended to the name of a host for the name of its Secret.
const credentialsSuffix = "-bmc"

func (c *checker) credentials(r *row, registration *registration) {
	secret, username, password := r.cell(columnCredentials), r.cell(columnUsername), r.cell(columnPassword)
	if secret.value == "" {
		registration.host.Spec.BMC.CredentialsName = registration.host.Name + credentialsSuffix
		registration.username, registration.password = username.value, password.value
		for _, column := range []string{columnUsername, columnPassword} {
			if cell := r.cell(column); cell.value == "" {
				c.list.wrong(cell.position, "%s is missing: write it, or the name of a Secret that has it into the column credentials", column)
			}
		}
		return
	}
	registration.host.Spec.BMC.CredentialsName = secret.value
	if problems := validation.IsDNS1123Subdomain(secret.value); len(problems) > 0 {
		c.list.wrong(secret.position, "credentials is no name of a Secret: %s", properties.Because(problems))
	}
	if username.value != "" || password.value != "" {
		c.list.wrong(secret.position, "credentials names a Secret, and there is a username or a password: leave out the one or the others")
	}
}

func (c *checker) labels(r *row) map[string]string {
	all := slices.Clone(r.labels)
	if rack := r.cell(columnRack); rack.value != "" {
		all = append(all, label{rack.position, v1alpha1.RackLabelKey, rack.value})
	}
	if zone := r.cell(columnZone); zone.value != "" {
		all = append(all, label{zone.position, v1alpha1.DatacenterLabelKey, zone.value})
	}
	labels := map[string]string{}
	for _, label := range all {
		if problems := validation.IsQualifiedName(label.key); len(problems) > 0 {
			c.list.wrong(label.position, "the label %q has a wrong key: %s", label.key, properties.Because(problems))
		}
		if problems := validation.IsValidLabelValue(label.value); len(problems) > 0 {
			c.list.wrong(label.position, "the label %s is %q: %s", label.key, label.value, properties.Because(problems))
		}
		if other, is := labels[label.key]; is && other != label.value {
			c.list.wrong(label.position, "the label %s is %q and %q: leave one out", label.key, other, label.value)
		}
		labels[label.key] = label.value
	}
	return labels
}

// compare lists the differences from the existing host. A field that identifies the server cannot change. A field
// that the row does not have stays.
func (c *checker) compare(r *row, registration *registration) {
	existing := c.existing[types.NamespacedName{Namespace: registration.host.Namespace, Name: registration.host.Name}]
	if existing == nil {
		return
	}
	registration.existing = existing
	wanted, host := registration.host, existing.DeepCopy()
	change := func(what, before, after string, set func()) {
		if before != after {
			set()
			registration.changes = append(registration.changes, fmt.Sprintf("%s: %q -> %q", what, before, after))
		}
	}
	spec := &host.Spec
	switch {
	case !existing.DeletionTimestamp.IsZero():
		c.list.wrong(r.position, "BareMetalHost %s is being deleted: run this again when it is gone", nameOf(existing))
	case spec.BMC.Address != "" && spec.BMC.Address != wanted.Spec.BMC.Address:
		c.list.wrong(r.cell(columnBMC).position, "bmc is %q, and BareMetalHost %s has %q, so that it would be another server: use another name, "+
			"or delete the BareMetalHost first", properties.PublicURL(wanted.Spec.BMC.Address), nameOf(existing),
			properties.PublicURL(spec.BMC.Address))
	case spec.BootMACAddress != "" && wanted.Spec.BootMACAddress != "" &&
		!strings.EqualFold(spec.BootMACAddress, wanted.Spec.BootMACAddress):
		c.list.wrong(r.cell(columnMAC).position, "mac is %q, and BareMetalHost %s has %q, so that it would be another server: use another name, "+
			"or delete the BareMetalHost first", wanted.Spec.BootMACAddress, nameOf(existing), spec.BootMACAddress)
	case r.cell(columnCredentials).value == "" && spec.BMC.CredentialsName != "" &&
		spec.BMC.CredentialsName != wanted.Spec.BMC.CredentialsName:
		c.list.wrong(r.cell(columnUsername).position,
			"BareMetalHost %s has its credentials from the Secret %s, which is not written here: write "+
				"%[2]s into the column credentials, and no username and password", nameOf(existing), spec.BMC.CredentialsName)
	}
	change("bmc", spec.BMC.Address, wanted.Spec.BMC.Address, func() { spec.BMC.Address = wanted.Spec.BMC.Address })
	change("credentials", spec.BMC.CredentialsName, wanted.Spec.BMC.CredentialsName, func() {
		spec.BMC.CredentialsName = wanted.Spec.BMC.CredentialsName
	})
	if mac := wanted.Spec.BootMACAddress; mac != "" && spec.BootMACAddress == "" {
		change("mac", "", mac, func() { spec.BootMACAddress = mac })
	}
	if unverified := r.cell(columnUnverified).value; unverified != "" {
		change(columnUnverified, fmt.Sprint(spec.BMC.DisableCertificateVerification), unverified, func() {
			spec.BMC.DisableCertificateVerification = unverified == "true"
		})
	}
	if mode := wanted.Spec.BootMode; mode != "" {
		change(columnBootMode, string(spec.BootMode), string(mode), func() { spec.BootMode = mode })
	}
	if wanted.Spec.RootDeviceHints != nil {
		spec.RootDeviceHints = cmp.Or(spec.RootDeviceHints, &bmov1alpha1.RootDeviceHints{})
		hints := hintsOf(spec.RootDeviceHints)
		for i, hint := range hintsOf(wanted.Spec.RootDeviceHints) {
			if text := hint.String(); text != "" {
				change(hint.column, hints[i].String(), text, func() { hints[i].set(text) })
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted.Labels)) {
		value := wanted.Labels[key]
		if _, is := host.Labels[key]; !is && value == "" {
			metav1.SetMetaDataLabel(&host.ObjectMeta, key, "")
			registration.changes = append(registration.changes, "label "+key)
		}
		change("label "+key, host.Labels[key], value, func() { metav1.SetMetaDataLabel(&host.ObjectMeta, key, value) })
	}
	registration.host = host
}
