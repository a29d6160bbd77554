// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/url"
	"slices"
	"sync"

	"github.com/stmcginnis/gofish/schemas"

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

// Slots of virtual media.
const (
	CdSlot  = "Cd"
	UsbSlot = "Usb"
)

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
func (s *System) Path() string { return systemPath(s.identity.Name) }

// TakeBoot returns what to boot from now, and clears an override for one boot.
func (s *System) TakeBoot() Boot {
	s.mu.Lock()
	defer s.mu.Unlock()
	boot := Boot{Target: schemas.NoneBootSource, Media: map[string]string{}}
	if s.boot.enabled != schemas.DisabledBootSourceOverrideEnabled {
		boot.Target = s.boot.target
	}
	if s.boot.enabled == schemas.OnceBootSourceOverrideEnabled {
		s.boot.enabled, s.boot.target = schemas.DisabledBootSourceOverrideEnabled, schemas.NoneBootSource
	}
	for slot, image := range s.media {
		boot.Media[slot] = image
	}
	return boot
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
	media := map[string]string{}
	for slot, image := range s.media {
		media[slot] = image
	}
	return s.boot, media
}

// overrideBoot changes the given fields, or nothing if one is invalid.
func (s *System) overrideBoot(change bootChange) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.boot
	if v := change.BootSourceOverrideTarget; v != "" {
		if !slices.Contains(bootTargets(), v) {
			return notInList("BootSourceOverrideTarget", string(v))
		}
		next.target = v
		// Redfish: None as the target disables the override.
		if v == schemas.NoneBootSource {
			next.enabled = schemas.DisabledBootSourceOverrideEnabled
		}
	}
	if v := change.BootSourceOverrideEnabled; v != "" {
		if !slices.Contains([]schemas.BootSourceOverrideEnabled{
			schemas.DisabledBootSourceOverrideEnabled, schemas.OnceBootSourceOverrideEnabled, schemas.ContinuousBootSourceOverrideEnabled,
		}, v) {
			return notInList("BootSourceOverrideEnabled", string(v))
		}
		next.enabled = v
	}
	if v := change.BootSourceOverrideMode; v != "" {
		if v != schemas.UEFIBootSourceOverrideMode {
			return notInList("BootSourceOverrideMode", string(v))
		}
		next.mode = v
	}
	s.boot = next
	return nil
}

func (s *System) insert(slot, image string) *fault {
	if parsed, err := url.Parse(image); err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return badValue("Image", image, "it must be an http or https URL")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.media[slot] != "" {
		return inUse(fmt.Sprintf("%s holds %s: eject it first", slot, s.media[slot]))
	}
	s.media[slot] = image
	return nil
}

func (s *System) eject(slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.media, slot)
}
