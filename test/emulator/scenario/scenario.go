// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scenario reads the file that describes a rack: its servers, their hardware, their BMCs' accounts, and their
// faults from the start.
package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/ipmi"
)

// Scenario is the file.
type Scenario struct {
	// Profiles are kinds of hardware, by name, for servers to refer to.
	Profiles map[string]inventory.Hardware `json:"profiles,omitempty"`
	// Servers of the rack, at least one.
	Servers []Server `json:"servers"`
}

// Server describes a server of the rack.
type Server struct {
	// Name is a DNS label: it is part of the path of the server's resources, and of its directory.
	Name string `json:"name"`
	// UUID of the system; empty means one that is derived from the name.
	UUID string `json:"uuid,omitempty"`
	// Profile names the hardware; Hardware describes it. One of them must be given.
	Profile  string              `json:"profile,omitempty"`
	Hardware *inventory.Hardware `json:"hardware,omitempty"`
	// MACs replace those of the hardware's network interfaces, in their order.
	MACs []string `json:"macs,omitempty"`
	// BMC has the account and, optionally, an address of its own.
	BMC BMC `json:"bmc"`
	// Machine says that the rack's boot command is the whole server, which boots by network or from its first disk, as its BMC says. The
	// rack emulates its BMC only.
	Machine bool `json:"machine,omitempty"`
	// Faults that the server has from the start.
	Faults []faults.Fault `json:"faults,omitempty"`
}

// BMC describes access to a server's management controller.
type BMC struct {
	// Username and Password of the only account.
	Username string `json:"username"`
	Password string `json:"password"`
	// Protocol that the BMC speaks; empty means Redfish.
	Protocol Protocol `json:"protocol,omitempty"`
	// BindAddress is host:port of a service for this server alone. Empty means that of the rack, or, for IPMI, a free port of loopback.
	BindAddress string `json:"bindAddress,omitempty"`
}

// Protocol is what a BMC speaks.
type Protocol string

// The protocols of BMCs.
const (
	Redfish Protocol = "redfish"
	IPMI    Protocol = "ipmi"
)

// validate returns what is not valid.
func (b BMC) validate() error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if b.Username == "" || b.Password == "" {
		refuse("bmc needs a username and a password")
	}
	if b.BindAddress != "" {
		if _, _, err := net.SplitHostPort(b.BindAddress); err != nil {
			refuse("bmc.bindAddress %q must be host:port: %w", b.BindAddress, err)
		}
	}
	switch b.Protocol {
	case "", Redfish:
	case IPMI:
		if len(b.Username) > ipmi.MaxUsername || len(b.Password) > ipmi.MaxPassword {
			refuse("bmc.username and bmc.password must not be longer than %d and %d bytes, because bmc.protocol is ipmi",
				ipmi.MaxUsername, ipmi.MaxPassword)
		}
		if strings.ContainsAny(b.Username+b.Password, "\"\\ \t\n") {
			refuse("bmc.username and bmc.password must not have quotes, backslashes or spaces, because bmc.protocol is ipmi")
		}
	default:
		refuse("bmc.protocol %q is not known: it must be %s or %s", b.Protocol, Redfish, IPMI)
	}
	return errors.Join(problems...)
}

// Load reads a scenario. Its servers come back complete: with all of their hardware, and a UUID.
func Load(path string) (*Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the scenario, %w", err)
	}
	parsed, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("scenario %s, %w", path, err)
	}
	return parsed, nil
}

// Parse parses the content of a scenario file.
func Parse(data []byte) (*Scenario, error) {
	s := &Scenario{}
	converted, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	unknown, err := json.UnmarshalStrict(converted, s)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	if len(s.Servers) == 0 {
		return nil, errors.New("servers is empty: describe at least one")
	}
	var problems []error
	for i := range s.Servers {
		if err := s.complete(&s.Servers[i]); err != nil {
			name := cmp.Or(s.Servers[i].Name, fmt.Sprint(i))
			for _, problem := range flatten(err) {
				problems = append(problems, fmt.Errorf("servers[%s]: %w", name, problem))
			}
		}
	}
	return s, errors.Join(append(problems, s.conflicts()...)...)
}

// complete fills in defaults and returns what is not valid.
func (s *Scenario) complete(server *Server) error {
	var problems []error
	refuse := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, reason := range validation.IsDNS1123Label(server.Name) {
		refuse("name %q is not a DNS label: %s", server.Name, reason)
	}
	if server.UUID == "" {
		server.UUID = uuid.NewSHA1(uuid.NameSpaceOID, []byte("server "+server.Name)).String()
	}
	if _, err := uuid.Parse(server.UUID); err != nil {
		refuse("uuid %q: %w", server.UUID, err)
	}
	if err := server.BMC.validate(); err != nil {
		problems = append(problems, err)
	}
	for i, fault := range server.Faults {
		if err := fault.Validate(); err != nil {
			refuse("faults[%d]: %w", i, err)
		}
	}
	if hardware, err := s.hardware(server); err != nil {
		problems = append(problems, err)
	} else {
		server.Hardware = hardware
		if server.Machine && len(hardware.Disks) == 0 {
			refuse("hardware.disks is empty: a server with machine: true needs one to boot from")
		}
	}
	return errors.Join(problems...)
}

func (s *Scenario) hardware(server *Server) (*inventory.Hardware, error) {
	var hardware inventory.Hardware
	switch profile, known := s.Profiles[server.Profile]; {
	case server.Profile != "" && server.Hardware != nil:
		return nil, errors.New("profile and hardware are both given: give one of them")
	case server.Hardware != nil:
		hardware = *server.Hardware
	case server.Profile == "":
		return nil, errors.New("neither profile nor hardware is given: give one of them")
	case !known:
		return nil, fmt.Errorf("profile %q is not one of profiles: they are %s", server.Profile,
			strings.Join(slices.Sorted(maps.Keys(s.Profiles)), ", "))
	default:
		hardware = profile
	}
	if len(server.MACs) > len(hardware.NICs) {
		return nil, fmt.Errorf("macs has %d addresses for %d network interfaces", len(server.MACs), len(hardware.NICs))
	}
	hardware.NICs = slices.Clone(hardware.NICs)
	for i, mac := range server.MACs {
		hardware.NICs[i].MAC = mac
	}
	hardware = hardware.Complete(server.Name)
	return &hardware, hardware.Validate()
}

// conflicts returns the values that two servers must not share.
func (s *Scenario) conflicts() []error {
	var problems []error
	// Most of these are unique in the rack; what an account is unique in is an address.
	taken := map[string]string{}
	unique := func(server Server, kind, value string) {
		if value == "" {
			return
		}
		key := kind + " " + value
		if other, is := taken[key]; is {
			problems = append(problems, fmt.Errorf("servers[%s]: %s is that of server %s already", server.Name, key, other))
		}
		taken[key] = server.Name
	}
	passwords := map[string]Server{}
	for _, server := range s.Servers {
		unique(server, "name", server.Name)
		unique(server, "uuid", server.UUID)
		unique(server, "bmc.bindAddress", server.BMC.BindAddress)
		if server.Hardware != nil {
			for _, mac := range server.Hardware.MACs() {
				unique(server, "mac", mac)
			}
		}
		if server.BMC.BindAddress != "" || server.BMC.Protocol == IPMI {
			continue
		}
		// Ironic keeps one session for each address and user name.
		other, is := passwords[server.BMC.Username]
		if is && other.BMC.Password != server.BMC.Password {
			problems = append(problems, fmt.Errorf("servers[%s]: bmc.username %q has another password at server %s, and both share an address: "+
				"give each its own user name, or a bindAddress", server.Name, server.BMC.Username, other.Name))
		}
		passwords[server.BMC.Username] = server
	}
	return problems
}

func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, inner := range joined.Unwrap() {
			list = append(list, flatten(inner)...)
		}
		return list
	}
	return []error{err}
}
