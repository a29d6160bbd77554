// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"fmt"
	"net/http"
	"net/url"
	"path"

	"github.com/google/uuid"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"
)

// Slots of virtual media.
const (
	CdSlot  = "Cd"
	UsbSlot = "Usb"
)

// slots are the drives for virtual media, and what fits into them.
var slots = map[string][]schemas.VirtualMediaType{
	CdSlot:  {schemas.CDVirtualMediaType, schemas.DVDVirtualMediaType},
	UsbSlot: {schemas.USBStickVirtualMediaType},
}

// addManager adds the management controller itself, with its virtual media.
func (s *System) addManager(t tree) {
	t.add(document(schemas.Manager{
		Entity:    schemas.Entity{ODataID: s.managerPath(), ID: s.identity.Name, Name: "BMC of " + s.identity.Name},
		ODataType: "#Manager.v1_19_0.Manager", ManagerType: schemas.BMCManagerType, FirmwareVersion: "1.0.0", Model: "Emulated BMC",
		UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("manager "+s.identity.UUID)).String(), PowerState: schemas.OnPowerState, Status: healthy(),
	}, map[string]any{
		"VirtualMedia": link(s.mediaPath()),
		"Links":        map[string]any{"ManagerForServers": links(s.Path()), "ManagerForChassis": links(s.chassisPath())},
	}))
	_, inserted := s.settings()
	var media []map[string]any
	for slot, types := range slots {
		medium := schemas.VirtualMedia{
			Entity: entity(s.mediaPath(), slot), ODataType: "#VirtualMedia.v1_6_0.VirtualMedia", MediaTypes: types,
			ConnectedVia: schemas.NotConnectedConnectedVia, Inserted: ptr.To(inserted[slot] != ""), WriteProtected: ptr.To(true),
		}
		actions := medium.ODataID + "/Actions/VirtualMedia."
		extra := map[string]any{"Image": nil, "Actions": map[string]any{
			"#VirtualMedia.InsertMedia": map[string]any{"target": actions + "InsertMedia"},
			"#VirtualMedia.EjectMedia":  map[string]any{"target": actions + "EjectMedia"},
		}}
		if image := inserted[slot]; image != "" {
			extra["Image"], medium.ImageName, medium.ConnectedVia = image, path.Base(image), schemas.URIConnectedVia
		}
		media = append(media, document(medium, extra))
		t[actions+"InsertMedia"] = resource{changes: changes{
			http.MethodPost: func(r *http.Request) *fault { return s.insert(slot, r) },
		}}
		t[actions+"EjectMedia"] = resource{changes: changes{
			http.MethodPost: func(*http.Request) *fault { return s.eject(slot) },
		}}
	}
	t.collect(s.mediaPath(), "VirtualMedia", media...)
}

// insertion is the body of InsertMedia. Parameters of the transfer are accepted and ignored: images are fetched by
// HTTP.
type insertion struct {
	Image                string
	Inserted             *bool
	WriteProtected       *bool
	TransferMethod       *string
	TransferProtocolType *string
	UserName             *string
	Password             *string
	MediaType            *string
}

func (s *System) insert(slot string, r *http.Request) *fault {
	var action insertion
	if refusal := decode(r, &action); refusal != nil {
		return refusal
	}
	switch {
	case action.Image == "":
		return missing("Image")
	case action.Inserted != nil && !*action.Inserted:
		return notInList("Inserted", "false")
	case action.WriteProtected != nil && !*action.WriteProtected:
		return notInList("WriteProtected", "false")
	}
	image, err := url.Parse(action.Image)
	if err != nil || image.Host == "" || image.Scheme != "http" && image.Scheme != "https" {
		return badValue("Image", action.Image, "it must be an http or https URL")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.media[slot] != "" {
		return inUse(fmt.Sprintf("%s holds %s: eject it first", slot, s.media[slot]))
	}
	s.media[slot] = action.Image
	return nil
}

func (s *System) eject(slot string) *fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.media, slot)
	return nil
}
