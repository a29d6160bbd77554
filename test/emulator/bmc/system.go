// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// Power is the server that the BMC controls.
type Power interface {
	// PowerState is On or Off.
	PowerState() schemas.PowerState
	// Reset starts a change of power and returns without waiting for its end. It is only called with one of ResetTypes.
	Reset(schemas.ResetType)
}

// ResetTypes are the resets that every emulated BMC supports.
func ResetTypes() []schemas.ResetType {
	return []schemas.ResetType{
		schemas.OnResetType, schemas.ForceOnResetType, schemas.ForceOffResetType, schemas.GracefulShutdownResetType,
		schemas.GracefulRestartResetType, schemas.ForceRestartResetType, schemas.PowerCycleResetType,
	}
}

func bootTargets() []schemas.BootSource {
	return []schemas.BootSource{
		schemas.NoneBootSource, schemas.PxeBootSource, schemas.CdBootSource, schemas.HddBootSource, schemas.UsbBootSource,
	}
}

// Identity is the identity of a server and the account of its BMC.
type Identity struct {
	// Name is the last part of the path of its resources.
	Name string
	// UUID of the system.
	UUID string
	// Username and Password of the only account.
	Username, Password string
}

// Boot is what a server boots from when it is switched on.
type Boot struct {
	// Target is None when the order of the firmware decides.
	Target schemas.BootSource
	// Media holds the URLs of the images that are inserted, by slot.
	Media map[string]string
}

type bootOverride struct {
	target  schemas.BootSource
	enabled schemas.BootSourceOverrideEnabled
	mode    schemas.BootSourceOverrideMode
}

// System is the BMC of one server. It may be used concurrently.
type System struct {
	identity Identity
	hardware inventory.Hardware
	power    Power
	faults   *faults.Set

	mu    sync.Mutex
	boot  bootOverride
	media map[string]string
}

// NewSystem returns the BMC of a server that boots from its disk.
func NewSystem(identity Identity, hardware inventory.Hardware, power Power, set *faults.Set) *System {
	return &System{
		identity: identity, hardware: hardware, power: power, faults: set, media: map[string]string{},
		boot: bootOverride{target: schemas.NoneBootSource, enabled: schemas.DisabledBootSourceOverrideEnabled,
			mode: schemas.UEFIBootSourceOverrideMode},
	}
}

// Name of the server.
func (s *System) Name() string { return s.identity.Name }

// Path of the ComputerSystem, as it is given to Metal3 and Ironic.
func (s *System) Path() string { return root + "/Systems/" + s.identity.Name }

// TakeBoot returns what to boot from now, and clears an override for one boot.
func (s *System) TakeBoot() Boot {
	s.mu.Lock()
	defer s.mu.Unlock()
	boot := Boot{Target: schemas.NoneBootSource, Media: maps.Clone(s.media)}
	if s.boot.enabled != schemas.DisabledBootSourceOverrideEnabled {
		boot.Target = s.boot.target
	}
	if s.boot.enabled == schemas.OnceBootSourceOverrideEnabled {
		s.boot.enabled, s.boot.target = schemas.DisabledBootSourceOverrideEnabled, schemas.NoneBootSource
	}
	return boot
}

// BootOnce sets what the server boots from at its next boot; None leaves it to the order of the firmware.
func (s *System) BootOnce(target schemas.BootSource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot.target, s.boot.enabled = target, schemas.OnceBootSourceOverrideEnabled
}

// Status is the health of the BMC itself.
type Status struct {
	PowerState   schemas.PowerState                `json:"powerState"`
	BootTarget   schemas.BootSource                `json:"bootTarget"`
	BootOverride schemas.BootSourceOverrideEnabled `json:"bootOverride"`
	Media        map[string]string                 `json:"media"`
}

// Status of the BMC, whatever its faults are.
func (s *System) Status() Status {
	boot, media := s.settings()
	return Status{PowerState: s.power.PowerState(), BootTarget: boot.target, BootOverride: boot.enabled, Media: media}
}

func (s *System) settings() (bootOverride, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boot, maps.Clone(s.media)
}

func (s *System) managerPath() string   { return root + "/Managers/" + s.identity.Name }
func (s *System) chassisPath() string   { return root + "/Chassis/" + s.identity.Name }
func (s *System) below(p string) string { return s.Path() + "/" + p }
func (s *System) mediaPath() string     { return s.managerPath() + "/VirtualMedia" }
func (s *System) pciePath() string      { return s.chassisPath() + "/PCIeDevices" }

// resources are all of the server, by path.
func (s *System) resources() tree {
	t := tree{}
	s.addInventory(t)
	resetTarget := s.below("Actions/ComputerSystem.Reset")
	t[resetTarget] = resource{changes: changes{http.MethodPost: s.reset}}
	t[s.Path()] = resource{document: s.document(resetTarget, t[s.pciePath()].document["Members"].([]map[string]string)),
		changes: changes{http.MethodPatch: s.change}}
	s.addManager(t)
	return t
}

func (s *System) document(resetTarget string, gpus []map[string]string) map[string]any {
	boot, _ := s.settings()
	h := s.hardware
	sockets, cores, threads := h.Count()
	model := schemas.ComputerSystem{
		Entity:    schemas.Entity{ODataID: s.Path(), ID: s.identity.Name, Name: s.identity.Name},
		ODataType: "#ComputerSystem.v1_20_0.ComputerSystem", UUID: s.identity.UUID, HostName: s.identity.Name,
		Manufacturer: h.Manufacturer, Model: h.Model, SerialNumber: h.SerialNumber, SKU: h.Model, BiosVersion: h.BIOSVersion,
		SystemType: schemas.PhysicalSystemType, PowerState: s.power.PowerState(), Status: healthy(),
		Boot: schemas.Boot{
			BootSourceOverrideEnabled: boot.enabled, BootSourceOverrideTarget: boot.target, BootSourceOverrideMode: boot.mode,
			AllowableBootSourceOverrideTargetValues: bootTargets(),
		},
		MemorySummary: schemas.MemorySummary{TotalSystemMemoryGiB: ptr.To(float64(h.MemoryGiB))},
		ProcessorSummary: schemas.ProcessorSummary{
			Count: ptr.To(uint(sockets)), CoreCount: ptr.To(uint(cores)), LogicalProcessorCount: ptr.To(uint(threads)),
			Model: h.Processors[0].Model,
		},
	}
	extra := map[string]any{
		"PCIeDevices": gpus, "PCIeDevices@odata.count": len(gpus),
		"Links": map[string]any{"ManagedBy": links(s.managerPath()), "Chassis": links(s.chassisPath())},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": resetTarget, "ResetType@Redfish.AllowableValues": ResetTypes(),
		}},
	}
	for _, name := range []string{"Processors", "Memory", "EthernetInterfaces", "SimpleStorage", "Storage", "Bios"} {
		extra[name] = link(s.below(name))
	}
	return document(model, extra)
}

// change changes the boot override, or nothing if a value is invalid.
func (s *System) change(r *http.Request) *fault {
	var given struct{ Boot map[string]any }
	if refusal := decode(r, &given); refusal != nil {
		return refusal
	}
	if given.Boot == nil {
		return missing("Boot")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.boot
	for _, property := range slices.Sorted(maps.Keys(given.Boot)) {
		value := given.Boot[property]
		// Clients send whole objects, in which most properties are empty.
		if silent(value) {
			continue
		}
		text, _ := value.(string)
		valid := false
		switch property {
		case "BootSourceOverrideEnabled":
			next.enabled = schemas.BootSourceOverrideEnabled(text)
			valid = slices.Contains([]schemas.BootSourceOverrideEnabled{
				schemas.DisabledBootSourceOverrideEnabled, schemas.OnceBootSourceOverrideEnabled, schemas.ContinuousBootSourceOverrideEnabled,
			}, next.enabled)
		case "BootSourceOverrideMode":
			next.mode = schemas.BootSourceOverrideMode(text)
			valid = next.mode == schemas.UEFIBootSourceOverrideMode
		case "BootSourceOverrideTarget":
			next.target = schemas.BootSource(text)
			valid = slices.Contains(bootTargets(), next.target)
			// Redfish: None as the target disables the override.
			if next.target == schemas.NoneBootSource {
				next.enabled = schemas.DisabledBootSourceOverrideEnabled
			}
		default:
			return unknownProperty("Boot/" + property)
		}
		if !valid {
			return notInList(property, fmt.Sprint(value))
		}
	}
	s.boot = next
	return nil
}

// silent returns whether a value is empty.
func silent(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, field := range v {
			if !silent(field) {
				return false
			}
		}
		return true
	}
	return false
}

func (s *System) reset(r *http.Request) *fault {
	var action struct{ ResetType schemas.ResetType }
	if refusal := decode(r, &action); refusal != nil {
		return refusal
	}
	switch {
	case action.ResetType == "":
		return missing("ResetType")
	case !slices.Contains(ResetTypes(), action.ResetType):
		return notInList("ResetType", string(action.ResetType))
	}
	s.power.Reset(action.ResetType)
	return nil
}
