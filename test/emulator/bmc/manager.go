// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"net/http"
	"path"

	"github.com/google/uuid"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/ptr"
)

// slots are the drives for virtual media, and what fits into them.
func slots() map[string][]schemas.VirtualMediaType {
	return map[string][]schemas.VirtualMediaType{
		CdSlot:  {schemas.CDVirtualMediaType, schemas.DVDVirtualMediaType},
		UsbSlot: {schemas.USBStickVirtualMediaType},
	}
}

func managerRoutes() map[string]methods {
	manager := root + "/Managers/{server}"
	media := manager + "/VirtualMedia"
	return map[string]methods{
		manager: get(func(c *call) map[string]any { return c.system.manager() }),
		media: get(func(c *call) map[string]any {
			return collection(c.system.mediaPath(), "VirtualMediaCollection", "Virtual Media",
				[]string{c.system.mediaPath() + "/" + CdSlot, c.system.mediaPath() + "/" + UsbSlot})
		}),
		media + "/{slot}": get(func(c *call) map[string]any { return c.system.mediaDocument(c.PathValue("slot")) }),
		media + "/{slot}/Actions/VirtualMedia.InsertMedia": {http.MethodPost: insertMedia},
		media + "/{slot}/Actions/VirtualMedia.EjectMedia":  {http.MethodPost: ejectMedia},
	}
}

func (s *System) manager() map[string]any {
	return document(schemas.Manager{
		Entity:    schemas.Entity{ODataID: s.managerPath(), ID: s.identity.Name, Name: "BMC of " + s.identity.Name},
		ODataType: "#Manager.v1_19_0.Manager", ManagerType: schemas.BMCManagerType, FirmwareVersion: "1.0.0", Model: "Emulated BMC",
		UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("manager "+s.identity.UUID)).String(), PowerState: schemas.OnPowerState, Status: healthy(),
	}, map[string]any{
		"VirtualMedia": link(s.mediaPath()),
		"Links":        map[string]any{"ManagerForServers": links(s.Path()), "ManagerForChassis": links(s.chassisPath())},
	})
}

func (s *System) mediaDocument(slot string) map[string]any {
	types, ok := slots()[slot]
	if !ok {
		return nil
	}
	_, media := s.settings()
	image, connected := media[slot], schemas.NotConnectedConnectedVia
	if image != "" {
		connected = schemas.URIConnectedVia
	}
	own := s.mediaPath() + "/" + slot
	extra := map[string]any{"Image": nil, "Actions": map[string]any{
		"#VirtualMedia.InsertMedia": map[string]any{"target": own + "/Actions/VirtualMedia.InsertMedia"},
		"#VirtualMedia.EjectMedia":  map[string]any{"target": own + "/Actions/VirtualMedia.EjectMedia"},
	}}
	model := schemas.VirtualMedia{
		Entity: entity(s.mediaPath(), slot), ODataType: "#VirtualMedia.v1_6_0.VirtualMedia", MediaTypes: types,
		ConnectedVia: connected, Inserted: ptr.To(image != ""), WriteProtected: ptr.To(true),
	}
	if image != "" {
		extra["Image"], model.ImageName = image, path.Base(image)
	}
	return document(model, extra)
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

func insertMedia(c *call) (result, *fault) {
	slot := c.PathValue("slot")
	if slots()[slot] == nil {
		return result{}, notFound(c.URL.Path)
	}
	var action insertion
	if refusal := decode(c.Request, &action); refusal != nil {
		return result{}, refusal
	}
	switch {
	case action.Image == "":
		return result{}, missing("Image")
	case action.Inserted != nil && !*action.Inserted:
		return result{}, notInList("Inserted", "false")
	case action.WriteProtected != nil && !*action.WriteProtected:
		return result{}, notInList("WriteProtected", "false")
	}
	return result{}, c.system.insert(slot, action.Image)
}

func ejectMedia(c *call) (result, *fault) {
	slot := c.PathValue("slot")
	if slots()[slot] == nil {
		return result{}, notFound(c.URL.Path)
	}
	c.system.eject(slot)
	return result{}, nil
}
