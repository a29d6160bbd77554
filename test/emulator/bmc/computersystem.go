// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

func systemPath(name string) string      { return root + "/Systems/" + name }
func (s *System) managerPath() string    { return root + "/Managers/" + s.identity.Name }
func (s *System) chassisPath() string    { return root + "/Chassis/" + s.identity.Name }
func (s *System) below(p string) string  { return s.Path() + "/" + p }
func (s *System) resetTarget() string    { return s.below("Actions/ComputerSystem.Reset") }
func (s *System) mediaPath() string      { return s.managerPath() + "/VirtualMedia" }
func (s *System) pciePath() string       { return s.chassisPath() + "/PCIeDevices" }
func (s *System) drive(id string) string { return s.below("Storage/1/Drives/" + id) }

// systemRoutes are the resources of one server, which all have its name in their path.
func systemRoutes() map[string]methods {
	routes := inventoryRoutes()
	system := root + "/Systems/{server}"
	routes[system] = methods{
		http.MethodGet:   reading(func(c *call) map[string]any { return c.system.document() }),
		http.MethodPatch: changeSystem,
	}
	routes[system+"/Actions/ComputerSystem.Reset"] = methods{http.MethodPost: reset}
	for path, methods := range managerRoutes() {
		routes[path] = methods
	}
	return routes
}

func (s *System) document() map[string]any {
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
		"PCIeDevices": links(s.pcieDevices()...), "PCIeDevices@odata.count": len(s.pcieDevices()),
		"Links": map[string]any{"ManagedBy": links(s.managerPath()), "Chassis": links(s.chassisPath())},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": s.resetTarget(), "ResetType@Redfish.AllowableValues": ResetTypes(),
		}},
	}
	for _, name := range []string{"Processors", "Memory", "EthernetInterfaces", "SimpleStorage", "Storage", "Bios"} {
		extra[name] = link(s.below(name))
	}
	return document(model, extra)
}

// bootChange is a requested change of the boot override; empty fields change nothing.
type bootChange struct {
	BootSourceOverrideTarget  schemas.BootSource
	BootSourceOverrideEnabled schemas.BootSourceOverrideEnabled
	BootSourceOverrideMode    schemas.BootSourceOverrideMode
}

func changeSystem(c *call) (result, *fault) {
	var change struct{ Boot map[string]any }
	if refusal := decode(c.Request, &change); refusal != nil {
		return result{}, refusal
	}
	if change.Boot == nil {
		return result{}, missing("Boot")
	}
	wanted := bootChange{}
	for _, property := range slices.Sorted(maps.Keys(change.Boot)) {
		value := change.Boot[property]
		// Clients send whole objects, in which most properties are empty.
		if silent(value) {
			continue
		}
		text, _ := value.(string)
		switch property {
		case "BootSourceOverrideTarget":
			wanted.BootSourceOverrideTarget = schemas.BootSource(text)
		case "BootSourceOverrideEnabled":
			wanted.BootSourceOverrideEnabled = schemas.BootSourceOverrideEnabled(text)
		case "BootSourceOverrideMode":
			wanted.BootSourceOverrideMode = schemas.BootSourceOverrideMode(text)
		default:
			return result{}, unknownProperty("Boot/" + property)
		}
		if text == "" {
			return result{}, notInList(property, fmt.Sprint(value))
		}
	}
	return result{}, c.system.overrideBoot(wanted)
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

func reset(c *call) (result, *fault) {
	var action struct{ ResetType schemas.ResetType }
	if refusal := decode(c.Request, &action); refusal != nil {
		return result{}, refusal
	}
	switch {
	case action.ResetType == "":
		return result{}, missing("ResetType")
	case !slices.Contains(ResetTypes(), action.ResetType):
		return result{}, notInList("ResetType", string(action.ResetType))
	}
	c.system.power.Reset(action.ResetType)
	return result{}, nil
}

// architecture returns the names that Redfish has for that of a processor.
func architecture(p inventory.Processor) (schemas.ProcessorArchitecture, schemas.InstructionSet) {
	if p.Architecture == inventory.AArch64 {
		return schemas.ARMProcessorArchitecture, schemas.ARMA64InstructionSet
	}
	return schemas.X86ProcessorArchitecture, schemas.X8664InstructionSet
}
