// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/metal3-io/baremetal-operator/pkg/hardwareutils/bmc"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Model is a model of server as others may know it: nothing in it tells one server from another of its kind, or where it is.
type Model struct {
	// Name is the manufacturer and the product, without what tells servers of a product apart, such as a SKU.
	Name string `json:"name"`
	// Processor is the model of the CPUs, and Threads how many threads they have together.
	Processor string `json:"processor,omitempty"`
	Threads   int    `json:"threads,omitempty"`
	// NetworkCards is how many network interfaces Metal3 has found.
	NetworkCards int `json:"networkCards"`
	// BMC is the protocol that spec.bmc.address begins with, as Metal3 has it.
	BMC string `json:"bmc"`
	// BIOS is its vendor and its version.
	BIOS     string               `json:"bios,omitempty"`
	BootMode bmov1alpha1.BootMode `json:"bootMode"`
	// Cleaning is spec.automatedCleaningMode.
	Cleaning bmov1alpha1.AutomatedCleaningMode `json:"cleaning"`
	// Accelerators are those of the first NodeType that the servers match.
	Accelerators string `json:"accelerators,omitempty"`
}

// ModelReport is what has worked on the servers of a model.
type ModelReport struct {
	Model `json:",inline"`
	// Servers that Metal3 has inspected. Of these, Installed and Deprovisioned are how many it has installed and deprovisioned at least
	// once, and Joined how many are nodes now.
	Servers       int `json:"servers"`
	Installed     int `json:"installed"`
	Joined        int `json:"joined"`
	Deprovisioned int `json:"deprovisioned"`
	// Errors are how many of the servers have an error now, by its type.
	Errors map[bmov1alpha1.ErrorType]int `json:"errors,omitempty"`
	// InstallSeconds, JoinSeconds and CleanSeconds are the medians of the last time that Metal3 has installed, a server has booted and joined,
	// and Metal3 has deprovisioned it, which includes cleaning; 0 if that is not known.
	InstallSeconds int64 `json:"installSeconds,omitempty"`
	JoinSeconds    int64 `json:"joinSeconds,omitempty"`
	CleanSeconds   int64 `json:"cleanSeconds,omitempty"`
}

// Models returns what has worked on each model of server, by name, and how many servers Metal3 has not inspected.
func (f *Fleet) Models() (reports []ModelReport, uninspected int) {
	models := map[Model][]*bmov1alpha1.BareMetalHost{}
	for _, host := range f.hosts {
		if host.Status.HardwareDetails == nil {
			uninspected++
			continue
		}
		model := f.modelOf(host)
		models[model] = append(models[model], host)
	}
	for model, hosts := range models {
		report := ModelReport{Model: model, Servers: len(hosts), Errors: map[bmov1alpha1.ErrorType]int{}}
		for _, host := range hosts {
			history := host.Status.OperationHistory
			if !history.Provision.End.IsZero() {
				report.Installed++
			}
			if !history.Deprovision.End.IsZero() {
				report.Deprovisioned++
			}
			if machine := f.MachineOn(host); machine != nil && machine.Status.NodeName != "" {
				report.Joined++
			}
			if host.Status.ErrorType != "" {
				report.Errors[host.Status.ErrorType]++
			}
		}
		took := f.took(hosts)
		report.InstallSeconds, report.JoinSeconds, report.CleanSeconds = median(took[provisions]), median(took[boots]), median(took[deprovisions])
		reports = append(reports, report)
	}
	slices.SortFunc(reports, func(a, b ModelReport) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(fmt.Sprint(a.Model), fmt.Sprint(b.Model)))
	})
	return reports, uninspected
}

func (f *Fleet) modelOf(host *bmov1alpha1.BareMetalHost) Model {
	details := host.Status.HardwareDetails
	product, _, _ := strings.Cut(details.SystemVendor.ProductName, " (") // the SKU, which may be the number of the server
	model := Model{
		Name:      cmp.Or(strings.TrimSpace(details.SystemVendor.Manufacturer+" "+product), unknownVendor),
		Processor: strings.TrimSpace(details.CPU.Model + " " + details.CPU.Arch), Threads: details.CPU.Count, NetworkCards: len(details.NIC),
		BMC: "unknown", BIOS: strings.TrimSpace(details.Firmware.BIOS.Vendor + " " + details.Firmware.BIOS.Version), BootMode: host.BootMode(),
		Cleaning: cmp.Or(host.Spec.AutomatedCleaningMode, bmov1alpha1.CleaningModeMetadata),
	}
	if access, err := bmc.NewAccessDetails(host.Spec.BMC.Address, false); err == nil {
		model.BMC = access.Type()
	}
	if known, _ := f.inventory.Server(keyOf(host)); len(known.Types) > 0 {
		model.Accelerators = capacity.Accelerators(&f.nodeTypes[known.Types[0]].Spec.HardwareProfile)
	}
	return model
}
